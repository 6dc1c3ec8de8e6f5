"""What a method takes beside its data; a system declares it in its `__init__`, which help of the command line loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ExtraInput:
    """Something that a method takes beside its data."""

    name: str  # option of the command line, key of a workflow
    what: str  # in words, such as `"tags of every row"`
    # what the option names: a block store, or a file with pairs of rows and a number, with one text a row, with edges of features, or with
    # names and rows
    reads: Literal["store", "pairs", "texts", "edges", "named-rows"]
    form: str  # help of the option: what a line of the file holds
    required: bool = False  # whether the method cannot run without it
    compared: bool = True  # whether fits of its method are scored on rows held out, so that settings can be compared
    # values, ordered: of pairs: the numbers that a pair may have, and whether (i, j) is another pair than (j, i)
    values: tuple[int, int] = (-1, 1)
    ordered: bool = False
    methods: tuple[str, ...] = ()  # which methods of its system take it; empty: all
