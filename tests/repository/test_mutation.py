"""The mutation run itself: the faults it makes, the lists it draws, and what counts as met."""

import ast
import json
import os
import subprocess
import sys

import pytest

from tests.mutation.choice import ImportGraph, chosen_mutants
from tests.mutation.mutants import mutants_of
from tests.mutation.reached import Reached
from tests.mutation.results import Line, Results
from tests.support.clusters import ROOT

TEXT = '''\
"""Words 1 < 2."""


def f(a: int = 3, é: float = 0.5) -> float:
    """More 1 + 2."""
    if not a and é <= -a:
        raise ValueError("1 + 1")
    while ready(a):
        a += 1
    out[a] = max(é * 2, 1)  # < 3
    out.sort()
    return "µ" if a == 1 else é**2
'''


def test_a_mutant_changes_one_place_and_what_it_makes_can_be_read():
    found = mutants_of("kernels/f.py", TEXT)
    made = {(m.kind, m.before, m.after) for m in found}
    assert made >= {
        ("constant", "3", "6"),
        ("constant", "0.5", "1.0"),
        ("negation", "not a", "(a)"),
        ("boolean", "and", "or"),
        ("compare", "<=", "<"),
        ("sign", "-a", "(+a)"),
        ("condition", "not a and é <= -a", "True"),
        ("condition", "ready(a)", "False"),
        ("update", "+=", "-="),
        ("swapped call", "max", "min"),
        ("arithmetic", "*", "/"),
        ("arithmetic", "**", "*"),
        ("removed assignment", "out[a] = max(é * 2, 1)", "pass"),
        ("removed call", "out.sort()", "pass"),
        ("compare", "==", "!="),
    }
    for mutant in found:
        changed = mutant.applied(TEXT)
        ast.parse(changed)
        assert changed != TEXT and changed.startswith('"""Words 1 < 2."""') and "1 + 1" in changed and "# < 3" in changed
    with pytest.raises(ValueError, match="no longer reads"):
        found[0].applied("x" + TEXT)


def test_a_fault_is_found_again_where_its_lines_have_moved():
    mutant = next(m for m in mutants_of("f.py", TEXT) if m.kind == "removed assignment")
    later = "import os\n\n\n" + TEXT.replace("out.sort()", "out.sort(key=len)")
    changed = mutant.moved(TEXT, later).applied(later)
    assert changed == later.replace("out[a] = max(é * 2, 1)", "pass") != later
    with pytest.raises(ValueError, match="no longer reads"):
        mutant.moved(TEXT, later.replace("max(é", "min(é"))
    twice = later + "\n" * 50 + TEXT
    assert mutant.moved(TEXT, twice).start < len(later), "the nearer of two"


@pytest.mark.slow
def test_the_list_is_drawn_by_its_seed():
    one, same, other = (chosen_mutants(ROOT, 50, seed) for seed in (0, 0, 1))
    assert one == same != other and len(one) == 50 and len({m.name for m in one}) == 50
    assert [sum(m.file.startswith(folder) for m in one) for folder in ("kernels", "pipeline", "storage")] == [20, 20, 10]


@pytest.mark.slow
def test_the_nearest_tests_come_first_and_what_a_registry_names_is_reached():
    graph = ImportGraph(ROOT)
    assert graph.tests_of("kernels/jit.py")[0].stem == "test_jit"
    assert graph.tests_of("storage/runs/store.py")[0].stem == "test_runs"
    files = [path for folder in ("kernels", "pipeline", "storage") for path in (ROOT / folder).rglob("*.py")]
    reached = [
        path
        for path in files
        if graph.tests_of(str(path.relative_to(ROOT))) is not graph.tests and graph.users(path).keys() & set(graph.tests)
    ]
    assert len(reached) > 0.97 * len(files)


def test_what_counts_as_met(tmp_path):
    results = Results(tmp_path)
    assert not results.goal_met()
    for number in range(20):
        results.add(
            Line(str(number), {"file": "kernels/f.py", "line": 1, "kind": "k", "before": "a", "after": "b"}, "c", "killed", "t", 1.0)
        )
    results.add(Line("20", {"file": "storage/f.py", "line": 1, "kind": "k", "before": "a", "after": "b"}, "c", "survived", "", 1.0))
    assert results.goal_met() and "storage: 0 killed, 1 survived" in results.summary()
    results.add(Line("0", {"file": "kernels/f.py", "line": 1, "kind": "k", "before": "a", "after": "b"}, "c", "survived", "", 1.0))
    assert not results.goal_met()
    (tmp_path / "equivalent.json").write_text('{"0": "the order of two equal terms"}')
    assert results.goal_met() and "equivalent: the order of two equal terms" in results.summary()
    results.add(Line("1", {"file": "kernels/f.py", "line": 1, "kind": "k", "before": "a", "after": "b"}, "d", "stale", "gone", 1.0))
    assert len(results.lines()) == 21


def test_the_tests_that_call_a_function_are_known_and_so_are_those_of_what_only_compiled_code_calls(tmp_path):
    outer, inner = "def outer(a):\n    return _inner(a) * SIZE\n\n\n", "@compiled\ndef _inner(a):\n    return a + 1\n\n\n"
    calls = f"{outer}{inner}SIZE = 3\n\n\ndef unseen():\n    pass\n"
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "f.py").write_text(calls)
    (tmp_path / "kernels" / "other.py").write_text("def far():\n    return f._inner() + unseen()\n")
    parts = tmp_path / "parts"
    parts.mkdir()
    (tmp_path / "t.py").write_text('def slow():\n    run("from gramplane.kernels.f import unseen")\n')
    lines = [
        {"test": f"t.py::{name}", "seconds": took, "failed": took == 9, "called": ["kernels/f.py:1"]}
        for name, took in (("slow", 2.0), ("quick", 0.1), ("broken", 9))
    ]
    lines.append({"test": "t.py::elsewhere", "seconds": 0.2, "failed": False, "called": ["kernels/other.py:1"]})
    (parts / "1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Reached.written(parts, tmp_path, tmp_path / "reached.json")
    reached = Reached(tmp_path / "reached.json", tmp_path)
    both = ["t.py::quick", "t.py::slow"]
    assert [reached.tests_of("kernels/f.py", line) for line in (2, 7, 10, 14)] == [both, both, both, ["t.py::slow"]]
    (tmp_path / "kernels" / "_program.py").write_text('def main():\n    pass\n\n\nif __name__ == "__main__":\n    main()\n')
    starter = calls.replace("_inner(a) * SIZE", '_inner(a) * SIZE + run("_program.py")')
    (tmp_path / "kernels" / "f.py").write_text(starter)
    assert Reached(tmp_path / "reached.json", tmp_path).tests_of("kernels/_program.py", 6) == both
    (tmp_path / "t.py").write_text("def test_written_since():\n    pass\n")
    assert Reached(tmp_path / "reached.json", tmp_path).tests_of("kernels/f.py", 2) == ["t.py"]
    assert reached.failing == ["t.py::broken"]
    assert Reached(tmp_path / "none.json", tmp_path).tests_of("kernels/f.py", 2) == []


def test_a_test_is_traced_with_the_functions_of_the_product_that_it_calls(tmp_path):
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.mutation.reached",
        "tests/storage/test_manifest.py",
    ]
    paths = os.pathsep.join([str(ROOT / "tests" / "support" / "_bare"), str(ROOT)])
    subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths, "GRAMPLANE_REACHED": str(tmp_path)}, check=True)
    lines = [json.loads(row) for part in tmp_path.glob("*.jsonl") for row in part.read_text().splitlines()]
    assert lines and any(called.startswith("storage/runs/files.py:") for line in lines for called in line["called"])
    assert not any(called.startswith("tests") for line in lines for called in line["called"])
