"""What a method takes beside its data; a system declares it in its `__init__`, which help of the command line loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ExtraInput:
    """Something that a method takes beside its data.

    Attributes
    ----------
    name
        Option of the command line, key of a workflow.
    what
        In words, such as ``"tags of every row"``.
    reads
        What the option names: a block store, or a file with pairs of rows and a number, or with one text a row.
    form
        Help of the option: what a line of the file holds.
    required
        Whether the method cannot run without it.
    compared
        Whether fits of its method are scored on rows held out, so that settings can be compared.
    values, ordered
        Of pairs: the numbers that a pair may have, and whether (i, j) is another pair than (j, i).
    """

    name: str
    what: str
    reads: Literal["store", "pairs", "texts"]
    form: str
    required: bool = False
    compared: bool = True
    values: tuple[int, int] = (-1, 1)
    ordered: bool = False
