"""Gram matrices that a fit keeps while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ..core.resources import Resources
from .grams import Grams
from .settings import GramSettings


class _RunsPasses(Protocol):
    resources: Resources


G = TypeVar("G", bound=_RunsPasses)


class LazyGrams(Generic[G]):
    """The matrices of a fit, made when they are first asked for: a function of data and settings, so anew after a resume."""

    def __init__(self, make: Callable[[Resources], G]) -> None:
        self._make = make
        self.found: G | None = None

    def __call__(self, resources: Resources) -> G:
        """Return the matrices, their passes to run where ``resources`` say."""
        self.found = self._make(resources) if self.found is None else self.found
        self.found.resources = resources
        return self.found


def hand_over(grams: Any, problem: object) -> Any:
    """Give a problem the matrices that another one over the same kernels made, if there are some; return what the next one is to get."""
    own = getattr(problem, "grams", None)
    if not isinstance(own, LazyGrams):
        return grams
    if isinstance(grams, LazyGrams):
        own.found = grams.found
    return own


def lazy_grams(data: Any, specs: Sequence[Any], settings: GramSettings | None) -> LazyGrams[Grams]:
    """Return the matrices of a fit whose machines have biases; these do the work of centring, except before a cosine."""
    centre = any(spec.centre and spec.normalize == "cosine" for spec in specs)
    return LazyGrams(lambda resources: Grams(data, specs, settings, resources, centre=centre))
