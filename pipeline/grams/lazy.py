"""Gram matrices that a fit keeps while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from ..records.context import RunContext
from .grams import Grams
from .settings import GramSettings


class _OverRows(Protocol):
    ctx: RunContext


G = TypeVar("G", bound=_OverRows)


class LazyGrams(Generic[G]):
    """The matrices of a fit, made when they are first asked for: a function of data and settings, so anew after a resume.

    ``make(ctx)`` returns them; ``data`` is what the kernels are over where that is not the data set of the run: matrices that were given.
    """

    def __init__(self, make: Callable[[RunContext], G], data: Any = None) -> None:
        self._make, self._data = make, data
        self.found: G | None = None

    def over(self, ctx: RunContext) -> RunContext:
        """Return a context with what the kernels are over as its data."""
        return ctx if self._data is None else replace(ctx, data=self._data)

    def __call__(self, ctx: RunContext) -> G:
        """Return the matrices, their passes to run where ``ctx`` says."""
        ctx = self.over(ctx)
        if self.found is None:
            self.found = self._make(ctx)
        self.found.ctx = ctx
        return self.found


def hand_over(grams: Any, problem: object) -> Any:
    """Give a problem the matrices that another one over the same kernels made, if there are some; return what the next one is to get."""
    own = getattr(problem, "grams", None)
    if not isinstance(own, LazyGrams):
        return grams
    if isinstance(grams, LazyGrams):
        own.found = grams.found
    return own


def lazy_grams(specs: Sequence[Any], settings: GramSettings | None, data: Any = None) -> LazyGrams[Grams]:
    """Return the matrices of a fit whose machines have biases; these do the work of centring, except before a cosine."""
    centre = any(spec.centre and spec.normalize == "cosine" for spec in specs)
    return LazyGrams(lambda ctx: Grams(ctx, specs, settings, centre=centre), data)
