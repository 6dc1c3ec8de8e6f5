"""Declarations in a method's ``__init__.py``: its purpose, and its inputs in addition to the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Profile:
    """The entry of a method on the page "Which method?"."""

    method: str  # its name
    problem: str  # what it solves, in one line
    returns: str  # what a fitted estimator says
    certificate: str  # what the gap is over
    nearest: str  # the best known estimator that is like it
    avoid: str  # when to take something else, and what


@dataclass(frozen=True)
class ExtraInput:
    """An input of a method in addition to its data."""

    name: str  # key of a workflow; with dashes for its underscores option of the command line
    what: str  # in words, such as `"tags of every row"`
    # what the option names: a block store, a matrix, or a file with pairs of rows and a number, with pairs of rows alone, or of features,
    # with one text a row, with names and rows, a table of numbers, or groups of features
    reads: Literal["store", "matrix", "pairs", "edges", "feature-edges", "texts", "named-rows", "columns", "groups"]
    form: str  # help of the option: what a line of the file holds
    required: bool = False  # whether the method cannot run without it
    compared: bool = True  # whether fits of its method are scored on rows held out, so that settings can be compared
    # values, ordered: of pairs: the numbers that a pair may have, and whether (i, j) is another pair than (j, i)
    values: tuple[int, int] = (-1, 1)
    ordered: bool = False
    least: int = 1  # of names and rows: rows that every name must have
    methods: tuple[str, ...] = ()  # which methods of its system take it; empty: all
    words: tuple[str, ...] = ()  # what may be said in place of a file: the values of the parameter of the same name

    @property
    def flag(self) -> str:
        """The command line option."""
        return f"--{self.name.replace('_', '-')}"


GROUPS = ExtraInput("groups", "groups of the features", "groups", "Groups of the features: one label a line, or .json with lists of ids")
