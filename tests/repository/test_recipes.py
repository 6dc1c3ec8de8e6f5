"""The recipes that CONTRIBUTING.md links work."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from gramplane.pipeline.registry import METHODS, MethodInfo
from gramplane.storage.ingest import ingest
from gramplane.testing import MethodCase, check_method
from tests.recipes.ridge.estimator import RidgeRegression
from tests.support.places import ROOT


@pytest.fixture
def ridge(monkeypatch):
    info = MethodInfo("ridge", "Ridge regression", "tests.recipes.ridge", "Ridge", "RidgeRegression")
    monkeypatch.setitem(METHODS, "ridge", info)
    return info


def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8))
    return X, X @ rng.normal(size=8) + 0.1 * rng.normal(size=60)


def case(**params):
    chosen = {"lam": 0.1, "tol": 1e-3, **params}
    return MethodCase("ridge", chosen, lambda path: ingest(rows(), path, task="regression"), ({**chosen, "lam": 0.2}, "lam"))


def test_the_method_of_the_recipe_passes_the_battery(ridge, capsys):
    check_method(case())


def test_its_estimator_solves_the_normal_equations(ridge):
    X, y = rows()
    model = RidgeRegression(lam=0.1, tol=1e-12, max_iter=2000).fit(X, y)
    np.testing.assert_allclose(model.model_.coef[0], np.linalg.solve(X.T @ X + 0.1 * np.eye(8), X.T @ y), atol=1e-6)


def test_the_battery_names_the_check_that_fails(ridge, capsys, monkeypatch):
    from tests.recipes.ridge.method import Ridge

    step = Ridge.step

    def forgetful(self, problem, state, resources):
        new = step(self, problem, state, resources)
        problem.steps = getattr(problem, "steps", 0) + 1  # what is not in the state is lost by a kill
        return type(new)(new.state, {**new.metrics, "n_points": problem.steps})

    monkeypatch.setattr(Ridge, "step", forgetful)
    with pytest.raises(AssertionError, match="ridge: resumes to the same bits: the histories differ"):
        check_method(case())


def test_a_method_is_at_most_eleven_files_and_150_lines():
    files = list((ROOT / "tests" / "recipes" / "ridge").glob("*.py"))
    assert len(files) + len(["pipeline/registry.py"]) <= 11
    assert sum(len(path.read_text().splitlines()) for path in files) <= 150


LOSS = ROOT / "tests" / "recipes" / "smooth_hinge.diff"


def test_a_loss_touches_three_files():
    assert len(re.findall(r"^\+\+\+ ", LOSS.read_text(), flags=re.MULTILINE)) <= 3


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the recipe")
def test_the_loss_of_the_recipe_passes_the_tests_of_every_loss(tmp_path):
    tree = tmp_path / "tree"
    for folder in ("cluster", "kernels", "pipeline", "storage", "workflows", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", ".numba", "fixtures", "mutation")
        shutil.copytree(ROOT / folder, tree / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tree)
    subprocess.run(["git", "apply", str(LOSS)], cwd=tree, check=True)
    path = os.pathsep.join([str(tree / "tests" / "support" / "_bare"), str(tree)])
    # A cache of its own: callers are cached together with what they call, so a warm one would not see the new branches.
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "compiled")}
    files = ["tests/kernels/test_losses.py", "tests/kernels/mixed_norm/test_solvers_rows.py", "tests/pipeline/methods/fgm/test_oracle.py"]
    words = ["-q", "-p", "no:cacheprovider", "-k", "smooth_hinge or test_losses", *files]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= 40
