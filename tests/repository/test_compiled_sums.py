"""Sums that the compiler may re-order keep one order: no loop sums and writes an array."""

import ast

from tests.support.places import ROOT

FOLDERS = ("kernels", "pipeline", "storage")


def mixed_loops(text: str) -> list[str]:
    """Functions compiled with reassociation of which an innermost loop writes to an array and adds to a number.

    Such a loop is vectorised only where its arrays are far enough from each other in memory, which is found out at run time.
    """
    found = []
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef) and any("reassociate" in ast.unparse(d) for d in function.decorator_list):
            loops = [node for node in ast.walk(function) if isinstance(node, (ast.For, ast.While))]
            inner = [loop for loop in loops if not any(node is not loop and node in loops for node in ast.walk(loop))]
            found += [function.name for loop in inner if _writes(loop) and _sums(loop)]
    return found


def _targets(loop):
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign):
            yield from node.targets
        elif isinstance(node, ast.AugAssign):
            yield node.target


def _writes(loop) -> bool:
    return any(isinstance(part, ast.Subscript) for target in _targets(loop) for part in ast.walk(target))


def _sums(loop) -> bool:
    return any(isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) for node in ast.walk(loop))


def test_the_search_sees_them():
    head = "@compiled(reassociate=True)\ndef f(a, b):\n    total = 0.0\n    for i in range(9):\n"
    assert mixed_loops(head + "        a[i] = b[i]\n        total += b[i]\n") == ["f"]
    assert mixed_loops(head + "        a[i], c = g(b[i])\n        total += c\n") == ["f"]
    assert mixed_loops(head + "        a[i] = b[i]\n    for i in range(9):\n        total += b[i]\n") == []
    assert mixed_loops((head + "        a[i] = b[i]\n        total += b[i]\n").replace("(reassociate=True)", "")) == []


def test_no_loop_that_sums_in_any_order_writes():
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 300
    assert {path.relative_to(ROOT).as_posix(): names for path in files if (names := mixed_loops(path.read_text()))} == {}
