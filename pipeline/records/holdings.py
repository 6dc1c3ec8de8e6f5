"""Formulas of what a driver holds, for the methods that do not yet have a function of their own (see ``core/memory.py``)."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..core.memory import Item

_SIGNS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


class Formula:
    """A formula in symbols; what stands side by side is multiplied, as in ``"8 n (d + 1)"``."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _parsed(self) -> ast.expr:
        sides = re.sub(r"(?<=[\w)])\s+(?=[\w(])", " * ", self.text.replace("^", "**"))
        return ast.parse(sides, mode="eval").body

    def value(self, symbols: Mapping[str, float]) -> float:
        """Return the number that values of the symbols give."""
        return _value(self._parsed, symbols)


def _value(node: ast.expr, symbols: Mapping[str, float]) -> float:
    if isinstance(node, ast.BinOp):
        return _SIGNS[type(node.op)](_value(node.left, symbols), _value(node.right, symbols))
    if isinstance(node, ast.Name):
        return symbols[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    raise ValueError(f"no part of a formula: {ast.dump(node)}")


@dataclass(frozen=True)
class Held:
    """A thing that a driver may hold, as it is declared."""

    what: str
    formula: str
    when: str = ""

    def of(self, **symbols: float) -> Item:
        """Return it with the bytes that the formula gives."""
        return self.taking(int(self._parsed.value(symbols)))

    def taking(self, nbytes: float) -> Item:
        """Return it with bytes that were found in another way, where sizes are rounded to whole blocks."""
        return self.what, int(nbytes)

    @cached_property
    def _parsed(self) -> Formula:
        return Formula(self.formula)
