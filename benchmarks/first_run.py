"""Processor time of the first fit of every method in a fresh process: cold, with nothing compiled on disk, and warm, with what that
left.

Each is user and system time of the process and its children, imports of Python, NumPy and SciPy counted; ``start`` is what a process
takes that imports the estimator and ends. ``floor`` is what NumPy, SciPy's sparse matrices, scikit-learn's base and numba with one
function from disk take without a line of ours. Python's own bytecode is there, as pip leaves it. `demo` runs as a user types it.
``--only "mkl;demo"`` runs some, ``--jobs`` at a time, on a machine that other work keeps busy; ``--compiled`` lists what was compiled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import benchmarks._harness as bench

COLD, WARM, DEMO = 8.0, 1.2, 10.0  # seconds of a processor that are aimed at

_DATA = """
import numpy as np
rng = np.random.default_rng(0)
X = rng.normal(size=(150, 12))
y = np.where(X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=150) > 0, "yes", "no")
t, task, pairs = X[:, 0] + 0.1 * rng.normal(size=150), np.arange(150) % 3, rng.integers(0, 60, (200, 2))
pairs = pairs[pairs[:, 0] != pairs[:, 1]]
S = np.exp(-((X[:60, None] - X[None, :60]) ** 2).sum(axis=2))
"""
FITS = {
    "fgm": "FGMClassifier().fit(X, y)",
    "fgm, numbers": "FGMRegressor().fit(X, t)",
    "group-lasso": "GroupLassoClassifier().fit(X, y)",
    "mkl": "MKLClassifier().fit(X, y)",
    "mkl, numbers": "MKLRegressor().fit(X, t)",
    "tri-class-svm": "TriClassSVC().fit(X, y)",
    "unsupervised-mkl": "UnsupervisedMKL().fit(X)",
    "kta-path": "KTASelectionPath().fit(X, y)",
    "two-layer-mkl": "TwoLayerMKLClassifier().fit(X, y)",
    "latent-task-mkl": "LatentTaskMKLClassifier().fit(X, y, task)",
    "rule-ensemble": "RuleEnsembleClassifier().fit(X, y)",
    "hierarchical-kernels": "HierarchicalKernelClassifier().fit(X, y)",
    "multitask-mkl": "MultiTaskMKLClassifier().fit(X, y, task)",
    "shared-subspace-mkl": "SharedSubspaceMKLClassifier().fit(X, y, task)",
    "multitask-selector": "MultiTaskSelector().fit(X, t, task)",
    "npkl": "SimpleNPKL().fit(X[:60], np.c_[pairs[:60], np.where(y[pairs[:60, 0]] == y[pairs[:60, 1]], 1, -1)])",
    "colored-mvu": "ColoredMVU().fit(X[:60], y[:60])",
    "mve": "MinimumVolumeEmbedding().fit(X[:60])",
    "spe": "StructurePreservingEmbedding().fit(X[:60])",
    "semantic-ranker": "SemanticKernelRanker().fit(X[:60], (X[:60] > 0.5).astype(float))",
    "visual-rank": "VisualRank().fit(S)",
    "social-strength": "SocialStrengthRanker().fit(np.stack([S, S @ S]), pairs, (pairs.sum(axis=1) % 2))",
}
_PROCESS = """
import json, resource, sys, warnings
warnings.simplefilter("ignore")
def spent():
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)
compiled = []
if {listen}:
    import time
    import numba.core.event as event
    class Listener(event.Listener):
        stack = []
        def on_start(self, one):
            self.stack.append([time.process_time(), 0.0])
        def on_end(self, one):
            began, inner = self.stack.pop()
            took = time.process_time() - began
            if self.stack:
                self.stack[-1][1] += took
            f = one.data["dispatcher"]
            compiled.append((took - inner, f"{{f.__module__}}.{{f.__name__}}", str(one.data["args"])))
    event.register("numba:compile", Listener())
from gramplane import {name}
{data}
start = spent()
{fit}
print(json.dumps(dict(start=start, total=spent(), compiled=compiled)))
"""


_FLOOR = """
import numpy as np, scipy.sparse, sklearn.base, numba, resource
from floor import first
first(np.zeros(2))
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
"""


def environment(cache: Path) -> dict[str, str]:
    """Return the variables of a process that writes compiled code to a folder, and bytecode where Python always does."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {"NUMBA_CACHE_DIR": str(cache)}


def run_floor(folder: Path) -> float:
    """Return the least seconds of a processor of a process that imports what ours needs, and loads one compiled function."""
    (folder / "floor.py").write_text("import numba\n\n\n@numba.njit(cache=True)\ndef first(x):\n    return x[0]\n")
    variables = environment(folder / "floor-cache") | {"PYTHONPATH": str(folder)}
    return min(printed(_FLOOR, variables) for _ in range(3))


def run_fit(fit: str, cache: Path, listen: bool = False) -> dict[str, Any]:
    """Return what a process took that fits once, ``start`` before the fit and ``total``, seconds of a processor."""
    code = _PROCESS.format(name=fit.partition("(")[0], data=_DATA, fit=fit, listen=listen)
    return printed(code, environment(cache))


def printed(code: str, variables: dict[str, str]) -> Any:
    """Return what a process of its own prints last, as JSON."""
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def run_both(name: str, cache: Path, listen: bool) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Run a fit cold, and twice warm; return its name, what the cold one took, and what the better warm one did."""
    cold = run_fit(FITS[name], cache, listen)
    warm = min((run_fit(FITS[name], cache) for _ in range(2)), key=lambda one: one["total"])
    lines = [f"{name:24} cold {cold['total']:6.2f}  warm {warm['total']:5.2f}  start {warm['start']:5.2f}"]
    for seconds, function, types in sorted(cold["compiled"], reverse=True):
        lines.append(f"    {seconds:6.2f} {function} {types[:150]}")
    print("\n".join(lines), file=sys.stderr, flush=True)
    return name, cold, warm


def run_demo(cache: Path, out: Path) -> float:
    """Return the seconds of a processor that `demo` takes, its workers counted."""
    command = [sys.executable, "-m", "gramplane.workflows.cli", "demo", "--out", str(out)]
    code = (
        "import resource, subprocess, sys\n"
        f"subprocess.run({command!r}, check=True, stdout=sys.stderr)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\nprint(used.ru_utime + used.ru_stime)"
    )
    return printed(code, environment(cache))


@bench.program(only=(";".join([*FITS, "demo"]), "visual-rank"), compiled=False, jobs=1)
def first_run(report: bench.Report, options: Any) -> None:
    report.title, chosen = "First fit of a process, and demo, nothing compiled before", options.only.split(";")
    with bench.scratch() as folder:
        every = "import gramplane, gramplane.workflows.demo\nfor name in dir(gramplane):\n    getattr(gramplane, name)"
        subprocess.run([sys.executable, "-c", every], env=environment(folder / "none"), check=True)
        floor = run_floor(folder)
        print(f"{'floor':24} {floor:6.2f}", file=sys.stderr, flush=True)
        report.value("floor of a warm fit: imports, one function from disk", floor, unit="s", form=".2f")
        fits = [name for name in chosen if name in FITS]
        with ThreadPoolExecutor(options.jobs) as pool:
            for name, cold, warm in pool.map(lambda k: run_both(fits[k], folder / f"cache{k}", options.compiled), range(len(fits))):
                report.value(f"{name}, cold", cold["total"], f"<= {COLD}", unit="s", form=".2f")
                report.value(f"{name}, warm", warm["total"], f"<= {WARM}", unit="s", form=".2f")
        if "demo" in chosen:
            for name in ("cold", "warm"):
                seconds = run_demo(folder / "demo-cache", folder / f"demo-{name}")
                print(f"{'demo':24} {name} {seconds:6.2f}", file=sys.stderr, flush=True)
                report.value(f"demo, {name}, workers counted", seconds, f"<= {DEMO}", unit="s", form=".2f")


if __name__ == "__main__":
    bench.run()
