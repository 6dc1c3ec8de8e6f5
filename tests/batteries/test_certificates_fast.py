"""Certificates where the fast paths run, against values that the fast path has no part in.

Every size at which a method computes in another way stands in the table of test_certificates_sides, which fits on both sides of each. Here
are faults of eigenpairs, bounds from more definitions, and the rules of many tasks.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.eigen import positive_part as spectral
from gramplane.kernels.eigen.operator import SymmetricOperator
from gramplane.kernels.eigen.positive_part import normalized_laplacian, positive_part
from gramplane.kernels.rules import machine as rule_machine
from gramplane.kernels.spectral import dual_ascent as spectral_dual
from gramplane.kernels.spectral import embeddings
from gramplane.kernels.spectral import problem as spectral_problem
from gramplane.kernels.spectral.dual_ascent import begin_ascent, relative_gap, solve_dual
from gramplane.kernels.spectral.pair_losses import EntryTerms
from gramplane.kernels.spectral.problem import SpectralProblem, evaluate
from gramplane.pipeline import load_model, run_method
from gramplane.pipeline.grams.weighted_sum import MATRIX_SHARE
from gramplane.storage.ingest import ingest

FORMS = [("squared_hinge", 2.0, {"B": 1.0}), ("square", 3.0, {"B": 1.0}), ("squared_hinge", 2.0, {"G": 0.5}), ("hinge", 1.5, {"B": 1.0})]


def pairs_problem(n, loss, p, seed=0, B=None, G=None):
    """A sparse graph in one piece, and pairs that must be alike or not; the cap grows with the rows."""
    rng, i = np.random.default_rng(seed), np.arange(n)
    S = sp.coo_array((np.ones(3 * n), (np.tile(i, 3), np.concatenate([(i + 1) % n, (i + 2) % n, rng.permutation(n)]))), (n, n)).tocsr()
    S = S + S.T
    S.setdiag(0)
    S.data[:] = 1
    S.eliminate_zeros()
    ends = rng.choice(n, (n // 6, 2))
    ends = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0)
    signs = np.where(ends[:, 0] % 2 == ends[:, 1] % 2, 1.0, -1.0)
    terms = EntryTerms(n, ends[:, 0], ends[:, 1], signs)
    cap = None if B is None else B * n
    return SpectralProblem(SymmetricOperator(-normalized_laplacian(S)), terms, np.ones(len(ends)), loss, 1.0, p, cap, G)


def densely(problem, alpha, monkeypatch):
    """The evaluation by a whole dense decomposition."""
    with monkeypatch.context() as patch:
        patch.setattr(spectral_problem, "positive_part", lambda operator, **_: positive_part(operator, method="dense"))
        return evaluate(problem, alpha)


def start_of(problem):
    return np.full(problem.terms.size, problem.C)


@pytest.mark.parametrize(("loss", "p", "form"), FORMS)
@pytest.mark.parametrize("n", [220, 820])
def test_bounds_of_filtered_eigenpairs_are_bounds(n, loss, p, form, monkeypatch):
    if n <= spectral.MAX_DENSE_ROWS:
        monkeypatch.setattr(spectral, "MAX_DENSE_ROWS", 100)
    problem = pairs_problem(n, loss, p, **form)
    state = solve_dual(problem, start_of(problem), tol=1e-3, max_iter=150)
    assert state.stop == "gap" and not state.exact, "the fast path did not run"
    below = densely(problem, state.best_alpha, monkeypatch).dual
    assert state.best_dual <= below + 1e-12 * abs(below) and state.best_dual == pytest.approx(below, rel=1e-5)
    if state.primal_anchor is None:
        assert state.best_primal == pytest.approx(densely(problem, state.primal_alpha, monkeypatch).primal, rel=1e-6)
    if n == 220:
        monkeypatch.setattr(spectral, "MAX_DENSE_ROWS", 800)
        whole = solve_dual(problem, start_of(problem), tol=1e-6, max_iter=2000)
        assert whole.exact and whole.best_dual <= state.best_primal + 1e-9 and state.best_dual <= whole.best_primal + 1e-9


@pytest.mark.parametrize(("loss", "p", "form"), FORMS)
def test_a_dual_of_coarse_eigenpairs_is_forgotten_before_the_end(loss, p, form, monkeypatch):
    """A solver that is as coarse as it may be, and does not say so: what it claimed must not come back as a bound."""

    def coarse(operator, *, tol, start=None, **_):
        part = positive_part(operator, method="dense")
        shrunk = part.values * (1.0 - tol) if tol > 1e-5 else part.values
        return replace(part, values=shrunk, method="chebyshev")

    problem = pairs_problem(60, loss, p, **form)
    monkeypatch.setattr(spectral_problem, "positive_part", coarse)
    state = solve_dual(problem, start_of(problem), tol=1e-3, max_iter=300)
    monkeypatch.undo()
    below = evaluate(problem, state.best_alpha).dual
    assert state.tight and state.stop == "gap" and relative_gap(problem, state) <= 1e-3
    assert state.best_dual == pytest.approx(below, rel=1e-10) and state.best_dual <= below + 1e-10 * abs(below)


@pytest.mark.parametrize(("loss", "p", "form"), FORMS)
@pytest.mark.parametrize("share", [1e-3, 1e-2])
def test_what_eigenpairs_may_have_missed_is_taken_off_the_bound(loss, p, form, share, monkeypatch):
    problem = pairs_problem(60, loss, p, **form)
    exact = evaluate(problem, start_of(problem)).dual

    def short(operator, **_):
        """Rayleigh quotients are too small; the squares that they lack are told."""
        part = positive_part(operator, method="dense")
        values = part.values * (1.0 - share)
        return replace(part, values=values, error=float(part.values @ part.values) / float(values @ values) - 1.0)

    monkeypatch.setattr(spectral_problem, "positive_part", short)
    found = evaluate(problem, start_of(problem)).dual
    assert found <= exact and found == pytest.approx(exact, abs=6 * share * abs(exact) + 6 * share * problem.terms.size)


def test_a_state_before_its_last_decomposition_claims_no_gap():
    problem = pairs_problem(60, "square", 2.0, B=1.0)
    assert relative_gap(problem, begin_ascent(problem, start_of(problem))) == np.inf
    assert spectral_dual.final_accuracy(1e-3) <= 1e-5


def test_an_embedding_by_the_ascent_has_the_bounds_of_newton_steps(monkeypatch, tmp_path):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 3))
    store = ingest((X, (X[:, 0] > 0).astype(int)), tmp_path / "data.zarr")

    def bounds(run, **params):
        found = run_method("colored-mvu", {"graph": "union", "C": 0.5, **params}, data=store.url, run=str(tmp_path / run)).summary
        return found["objective"] - found["gap"], found["objective"]

    exact = bounds("newton", tol=1e-8)
    monkeypatch.setattr(embeddings, "MAX_NEWTON_ROWS", 20)
    monkeypatch.setattr(spectral, "MAX_DENSE_ROWS", 10)
    monkeypatch.setattr(spectral, "MAX_WHOLE_ROWS", 10)
    low, high = bounds("ascent", tol=1e-3)
    scale = max(abs(high), abs(low))
    assert low <= exact[1] + 1e-7 * scale and exact[0] <= high + 1e-7 * scale and high - low <= 2e-3 * scale
    assert (low, high) != exact


def test_bounds_of_machines_by_passes_hold_the_optimum_of_whole_matrices(tmp_path):
    """Primal values from whole matrices by their definition; a driver that holds no sum of them, and one that holds all."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(120, 4))
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] > 0, 1, -1)
    store = ingest((X, y), tmp_path / "data.zarr")
    near = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    K = np.stack([np.exp(-0.5 * near), np.exp(-2.0 * (X[:, :1] - X[:, :1].T) ** 2), X @ X.T])

    def fitted(memory, tol):
        kernels = ["rbf(gamma=0.5)", "rbf(gamma=2)[0]", "linear"]
        params = {"scale": None, "kernels": kernels, "normalize": "none", "constraint": "simplex", "tol": tol}
        run = run_method("mkl", params, data=store.url, run=str(tmp_path / memory), driver_memory=memory)
        model, beta = load_model(str(tmp_path / memory)), np.zeros(len(X))
        beta[model.support_vectors_] = np.ravel(model.dual_coef_)
        f = np.tensordot(np.ravel(model.kernel_weights_), K, 1) @ beta
        primal = 0.5 * beta @ f + np.maximum(0.0, 1.0 - y * (f + np.ravel(model.intercept_)[0])).sum()
        assert run.summary["objective"] == pytest.approx(primal, rel=1e-5)
        return run.summary

    passes, whole = fitted("200KiB", 1e-3), fitted("2GiB", 1e-6)
    assert 4 * len(X) ** 2 > MATRIX_SHARE * (200 << 10), "the sum fits"
    assert passes["lower_bound"] <= whole["objective"] * (1 + 1e-6) and whole["lower_bound"] <= passes["objective"] * (1 + 1e-6)


def test_rules_of_many_tasks_keep_their_bounds_beyond_the_largest_system(monkeypatch, tmp_path):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(90, 3))
    y, task = np.where((X[:, 0] > 0) & (X[:, 1] < 0.5), 1, -1), np.arange(90) % 3
    store = ingest((X, y), tmp_path / "data.zarr", task_column=task)

    def run(name, tol):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            params = {"tol": tol, "C": 0.1, "task_kernel": (np.eye(3) + 1.0).tolist()}
            return run_method("rule-ensemble", params, data=store.url, run=str(tmp_path / name)).summary

    whole = run("whole", 1e-3)
    monkeypatch.setattr(rule_machine, "MAX_UNKNOWNS", 1)
    blocks = run("blocks", 1e-2)
    assert blocks["objective"] - blocks["gap"] <= whole["objective"] * (1 + 1e-6)
    assert whole["objective"] - whole["gap"] <= blocks["objective"] * (1 + 1e-6)
