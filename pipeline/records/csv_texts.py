"""Texts in CSV output that a spreadsheet would evaluate as formulas: a warning, or an apostrophe if requested."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_FORMULA = re.compile(r"[=@+\-]")
_NUMERAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class CsvTexts:
    """Converts the cells of one CSV output.

    With ``excel_safe``, a text gets a leading apostrophe if it begins with = or @, or begins with + or - and is not a number. Spreadsheets
    then show it as text. Without ``excel_safe``, :meth:`tell` warns of such texts.
    """

    def __init__(self, excel_safe: bool, warn: Callable[[str], object]) -> None:
        self._excel_safe, self._warn = excel_safe, warn
        self._found: list[str] = []

    def __call__(self, value: Any) -> Any:
        """Return a cell in the form in which it is written."""
        if not isinstance(value, str) or not _FORMULA.match(value) or _NUMERAL.fullmatch(value):
            return value
        self._found.append(value)
        return f"'{value}" if self._excel_safe else value

    def columns(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the columns of a table, with texts in the form in which they are written."""
        texts = {
            name: np.array([self(cell) for cell in column.tolist()], object)
            for name, column in columns.items()
            if column.dtype.kind in "OU"
        }
        return {self(name): texts.get(name, column) for name, column in columns.items()}

    def tell(self, out: str) -> None:
        """Warn of texts that a spreadsheet would evaluate, unless they were quoted."""
        if self._found and not self._excel_safe:
            which = f"{len(self._found)} texts begin with =, @, + or -, such as {self._found[0]!r}"
            self._warn(f"{out}: {which}, and spreadsheets compute them; excel_safe (--excel-safe) quotes them")
