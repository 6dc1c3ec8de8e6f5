"""What a mutant is, and the list of all that could be made of a source file."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

COMPARED: dict[type[ast.cmpop], str] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
COMPUTED: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.Pow: "*",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
ARITHMETIC = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
RELATIONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
SWAPPED = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "argmin": "argmax",
    "argmax": "argmin",
    "any": "all",
    "all": "any",
}
QUIET = {"debug", "info", "warning", "warn", "error", "emit", "report"}
"""Calls whose only effect is a word to the reader: removing them is not what this is about."""


@dataclass(frozen=True)
class Mutant:
    """One fault: the text between two offsets of a file, replaced.

    Attributes
    ----------
    file
        Path below the checkout.
    line
        Where it stands.
    start, end
        Offsets in the source, in characters.
    kind
        What was done, such as ``"compare"``.
    before, after
        Both texts.
    """

    file: str
    line: int
    start: int
    end: int
    kind: str
    before: str
    after: str

    @property
    def name(self) -> str:
        """A short name that stays while the file does."""
        return hashlib.sha256(f"{self.file}:{self.start}:{self.end}:{self.after}".encode()).hexdigest()[:10]

    def applied(self, source: str) -> str:
        """Return the source with the fault."""
        if source[self.start : self.end] != self.before:
            raise ValueError(f"{self.file}:{self.line} no longer reads {self.before!r}")
        return source[: self.start] + self.after + source[self.end :]

    def moved(self, drawn_from: str, source: str) -> Mutant:
        """Return the same fault in a later state of its file: where the lines that it stands in are now, nearest to where they were."""
        first = drawn_from.rfind("\n", 0, self.start) + 1
        last = drawn_from.find("\n", self.end) + 1 or len(drawn_from)
        lines, places, at = drawn_from[first:last], [], -1
        while (at := source.find(lines, at + 1)) >= 0:
            if at == 0 or source[at - 1] == "\n":
                places.append(at)
        if not places:
            raise ValueError(f"{self.file}:{self.line} no longer reads {lines.strip()[:80]!r}")
        shift = min(places, key=lambda place: abs(source.count("\n", 0, place) - drawn_from.count("\n", 0, first))) - first
        return replace(self, start=self.start + shift, end=self.end + shift)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.kind}: {self.before!r} -> {self.after!r}"


class _Source:
    """A parsed file with offsets of its nodes."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text, self.tree = file, text, ast.parse(text)
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._bytes = [line.encode() for line in text.splitlines(keepends=True)]

    def offset(self, line: int, column: int) -> int:
        return self._lines[line - 1] + len(self._bytes[line - 1][:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno or 0, node.end_col_offset or 0)

    def mutant(self, node: ast.expr | ast.stmt, kind: str, start: int, end: int, after: str) -> Mutant:
        return Mutant(self.file, node.lineno, start, end, kind, self.text[start:end], after)

    def whole(self, node: ast.expr | ast.stmt, kind: str, after: str) -> Mutant:
        return self.mutant(node, kind, *self.span(node), after)

    def between(self, node: ast.expr, left: ast.expr, right: ast.expr, symbol: str, kind: str, after: str) -> Iterator[Mutant]:
        """Replace the operator that stands between two operands."""
        start, end = self.span(left)[1], self.span(right)[0]
        at = self.text.find(symbol, start, end)
        if at >= 0 and "#" not in self.text[start:end]:
            yield self.mutant(node, kind, at, at + len(symbol), after)


def mutants_of(file: str, text: str) -> list[Mutant]:
    """Return every mutant of a file, in the order of the source."""
    source = _Source(file, text)
    found = [mutant for node in _live_nodes(source.tree) for mutant in _of_node(source, node)]
    return sorted({(m.start, m.end, m.after): m for m in found}.values(), key=lambda m: (m.start, m.end, m.after))


def _live_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Walk what runs: no annotations, imports, messages of exceptions, decorators, or branches for type checkers."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Raise, ast.JoinedStr, ast.Assert)):
            continue
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            todo += node.orelse
            continue
        yield node
        skipped = {"annotation", "returns", "decorator_list", "type_params"}
        for name, value in ast.iter_fields(node):
            if name not in skipped:
                todo += [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, ast.AST)]


def _of_node(source: _Source, node: ast.AST) -> Iterator[Mutant]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARED:
            yield from source.between(node, left, right, RELATIONS[type(op)], "compare", COMPARED[type(op)])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in COMPUTED and not _is_text(left, right):
            yield from source.between(node, left, right, ARITHMETIC[type(op)], "arithmetic", COMPUTED[type(op)])
        case ast.BoolOp(op=op, values=[left, right, *_]):
            symbol, after = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
            yield from source.between(node, left, right, symbol, "boolean", after)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield source.whole(node, "negation", f"({source.text[slice(*source.span(operand))]})")
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield source.whole(node, "sign", f"(+{source.text[slice(*source.span(operand))]})")
        case ast.Constant(value=bool() as value):
            yield source.whole(node, "constant", str(not value))
        case ast.Constant(value=int() | float() as value):
            yield source.whole(node, "constant", repr(value + 1 if value in (0, 1) else 2 * value))
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(test, (ast.Compare, ast.Constant)):
            for after in ("False",) if isinstance(node, ast.While) else ("True", "False"):
                yield source.whole(test, "condition", after)
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name) as called) if name in SWAPPED:
            end = source.span(called)[1]
            yield source.mutant(node, "swapped call", end - len(name), end, SWAPPED[name])
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name))) if name not in QUIET:
            yield source.whole(node, "removed call", "pass")
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in (ast.Add, ast.Sub):
            after = "-=" if isinstance(op, ast.Add) else "+="
            yield from source.between(target, target, value, ARITHMETIC[type(op)] + "=", "update", after)
        case ast.Assign(targets=[ast.Subscript()]) | ast.AugAssign(target=ast.Subscript()):
            yield source.whole(node, "removed assignment", "pass")
        case ast.Continue() | ast.Break():
            yield source.whole(node, "jump", "break" if isinstance(node, ast.Continue) else "continue")


def _is_text(*operands: ast.expr) -> bool:
    return any(isinstance(item, ast.JoinedStr) or (isinstance(item, ast.Constant) and isinstance(item.value, str)) for item in operands)
