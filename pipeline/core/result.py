"""States, steps and the result of a fit.

Only the state survives a step. Therefore an interrupted run that resumes ends with the same bits as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar


class State(Protocol):
    """Protocol of every state: the number of steps taken, and the reason to stop (``None`` while the fit continues)."""

    @property
    def iteration(self) -> int:
        """Number of steps taken."""
        ...

    @property
    def stop(self) -> str | None:
        """Reason to stop, or ``None``."""
        ...


S = TypeVar("S", bound=State)
M = TypeVar("M")


@dataclass(frozen=True)
class Step(Generic[S]):
    """One step: the new state, and the metrics of the step for display and history."""

    state: S
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome(Generic[S]):
    """The end of a fit's loop: the last state, the history, and the iteration at which the fit resumed (``None`` if it did not resume)."""

    state: S
    history: tuple[Mapping[str, Any], ...]
    resumed_at: int | None = None


def ended_early(config: Any, reason: str = "max_iter={0.max_iter}") -> str:
    """Return the warning that a fit stopped before it reached its tolerance. ``{0}`` in ``reason`` is replaced by ``config``."""
    return f"{reason.format(config)} ended the fit before tol={config.tol:g} was reached"


@dataclass(frozen=True)
class Result(Generic[M]):
    """A finished fit."""

    model: M
    stop: str | None
    converged: bool | None = None  # None: there is nothing to converge to, or the estimator says it
    objective: float | None = None
    gap: float | None = None  # bound on the distance to the optimum; None: no certificate
    certified_over: str = ""  # the problem that the bound refers to
    figures: Mapping[str, Any] = field(default_factory=dict)  # further numbers of the summary
    warnings: Sequence[str] = ()
    unfinished: str | None = None  # text of the ConvergenceWarning; "": there is nothing to say; None: max_iter came before tol
    # accuracy, or R2, of the training rows, and how many answers they get, from what is at hand; None: there is no target
    scores: Callable[[], Mapping[str, Any]] | None = None

    @classmethod
    def bounded(cls, model: Any, stop: str | None, certified_over: str, figures: Mapping[str, Any], **more: Any) -> Result[Any]:
        """Return the result of a model that stores a lower and an upper bound of the optimum in its ``figures``."""
        upper, lower = model.figures["upper_bound"], model.figures["lower_bound"]
        known = {"lower_bound": lower, "upper_bound": upper, **figures}
        return cls(model, stop, objective=upper, gap=upper - lower, certified_over=certified_over, figures=known, **more)

    @property
    def summary(self) -> dict[str, Any]:
        """Summary of the finished fit, ready for JSON."""
        certificate = {"objective": self.objective, "gap": self.gap, "certified_over": self.certified_over or None}
        return {**certificate, **self.figures, "stop": self.stop}
