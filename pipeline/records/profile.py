"""Profile: what a method is for, in the words of somebody who looks for one; a system declares it in its `__init__`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Data = Literal["wide table", "table", "kernels", "tasks", "stream", "pairs", "text", "few labels", "no labels", "graph", "images"]
Want = Literal[
    "few features", "few groups", "products", "rules", "kernel weights", "groups of tasks", "predictions", "clusters", "map", "ranking"
]


@dataclass(frozen=True)
class Profile:
    """A method as the page "Which method?" shows it."""

    method: str  # its name
    problem: str  # what it solves, in one line
    data: tuple[Data, ...]  # what one has, where it is the first to try; empty: where another one is
    wants: tuple[Want, ...]  # what one then gets
    returns: str  # what a fitted estimator says
    certificate: str  # what the gap is over
    nearest: str  # the best known estimator that is like it
    avoid: str  # when to take something else, and what
