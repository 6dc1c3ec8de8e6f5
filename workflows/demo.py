"""The demonstration: handwritten digits from scikit-learn, run with an ordinary workflow file."""

import time
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from .checking import ConfigError
from .commands.options import ComputeOptions
from .console import Emit

WORKFLOW = "fgm_poly2.yaml"
TEST_SHARE = 0.3
STEPS = ("train", "pairs", "score", "report")  # steps whose figures are shown


def write_digits(folder: Path) -> None:
    """Write ``train.npz``, ``test.npz`` (pixels from 0 to 1, labels 3 and 8) and ``pixels.txt`` (the names of the pixels), unless they
    exist.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits: Any = load_digits()
    chosen = np.isin(digits.target, (3, 8))
    pixels, labels = digits.data[chosen] / 16.0, digits.target[chosen]
    parts = train_test_split(pixels, labels, test_size=TEST_SHARE, random_state=0, stratify=labels)
    folder.mkdir(parents=True, exist_ok=True)
    for name, x, y in zip(("train", "test"), parts[:2], parts[2:], strict=True):
        if not (folder / f"{name}.npz").exists():
            np.savez(folder / f"{name}.npz", X=x, y=y)
    if not (folder / "pixels.txt").exists():
        (folder / "pixels.txt").write_text("\n".join(digits.feature_names) + "\n", encoding="utf-8")


def run_demo(out: Path, compute: ComputeOptions, emit: Emit) -> dict[str, Any]:
    """Write data and workflow file to the folder ``out``, run the workflow, and return its main results.

    Steps finished by an earlier demonstration are skipped, and an edited workflow file is kept.
    """
    from .runner import run_workflow
    from .schema import read_workflow

    began = time.perf_counter()
    write_digits(out / "data")
    write_workflow(out / WORKFLOW, emit)
    emit({"event": "step", "step": "waiting for workers to start and, the first time on a computer, for code to be compiled"})
    outcome = run_workflow(read_workflow(out / WORKFLOW), where=compute, sink=emit)
    results = outcome.last["results"]
    if not set(STEPS) <= set(results):
        raise ConfigError(f"{out / WORKFLOW}: the demonstration needs the steps {', '.join(STEPS)}; use `gramplane run` for other files")
    chosen = {"n_selected": results["pairs"]["n_selected"], "candidates": count_candidates(results["train"]["columns"])}
    figures = {"accuracy": results["score"]["accuracy"], **chosen, "seconds": round(time.perf_counter() - began, 2)}
    return {**figures, "report": results["report"]["report"], "workflow": str(out / WORKFLOW), "steps": dict(outcome.steps)}


def write_workflow(path: Path, emit: Emit) -> None:
    """Write the workflow file. A file that the user has edited is not replaced, and an event reports this."""
    packed = (resources.files(__package__ or "") / WORKFLOW).read_bytes()
    if not path.exists():
        path.write_bytes(packed)
    elif path.read_bytes() != packed:
        emit({"event": "warning", "message": f"{path} was edited and is run as it is; remove it to get the demonstration's own back"})


def count_candidates(width: int) -> int:
    """Return the number of linear and degree-2 features of ``width`` columns: the columns, their squares, and products of two."""
    return 2 * width + width * (width - 1) // 2
