"""Every model's objective is that of what it publishes: recomputed in plain NumPy, on data with constant, empty, equal and huge columns."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import gramplane.pipeline as api
from gramplane.kernels.jit import one_thread
from gramplane.pipeline import METHODS
from gramplane.storage.ingest import ingest
from tests.support.oracles import published as told

N, D = 48, 9


def awkward(seed: int = 0, n: int = N, huge: float = 1e8) -> np.ndarray:
    """Nine columns: three ordinary ones, a constant, an empty one, one that is there twice, a huge one, a huge constant, few non-zeros."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, D))
    X[:, :3] = rng.normal(size=(n, 3))
    X[:, 3], X[:, 5], X[:, 6], X[:, 7] = 3.0, X[:, 0], huge * rng.normal(size=n), -huge
    X[:, 8] = rng.normal(size=n) * (rng.random(n) < 0.2)
    return X


X = awkward()
TAME = awkward(huge=30.0)
"""The same with columns that steps of a fixed length can bear."""

_RNG = np.random.default_rng(1)
Y = X[:, 0] - X[:, 1] + 0.5 * X[:, 6] / 1e8 + 0.3 * _RNG.normal(size=N) + 0.7
LABELS = np.where(np.median(Y) + 0.3 < Y, "up", "down")
THREE = np.array(["a", "b", "c"])[np.digitize(Y, np.quantile(Y, [0.3, 0.7]))]
TASK = np.arange(N) % 3 + 5
CODES = TASK - 5
GROUPS = np.array([0, 0, 1, 1, 2, 3, 3, 4, 4])
KERNELS = [
    "rbf(gamma=0.5)[0:2] trace",
    "linear[0:3] trace",
    "linear[3] trace",
    "linear[4] trace",
    "linear[5] trace",
    "linear[6] trace",
    "linear[7] trace",
    "poly(degree=2)[1,3] trace",
    "linear[0:2] cosine",
]
COLUMNS = [[0, 1], [3], [4], [5], [6], [2, 7]]
ASIDE = np.c_[2000.0 + np.arange(N) % 7, 1e-5 * np.random.default_rng(2).normal(size=N)]
"""Covariates in units far apart."""
PAIRS = np.array([(i, (i + k) % N) for k in (1, 5) for i in range(N)])
LINKS = _RNG.integers(0, 2, len(PAIRS))
TRIPLES = np.array([(i, j, 1 if (i - j) % 2 else -1) for i in range(0, N, 2) for j in (i + 1, i + 4) if j < N])
TAGS = [["sea"] * int(_RNG.random() < 0.5) + [f"t{k}" for k in _RNG.integers(0, 9, 3)] for _ in range(N)]


@dataclass(frozen=True)
class Case:
    """A fitted model, and its objective from what it publishes.

    Attributes
    ----------
    name
        Of the estimator, and what is special.
    fit, value
        Return the fitted model, and from it the objective.
    rel
        Agreement asked for: of float64, or of what float32 kernels and bounds of a solver leave.
    """

    name: str
    fit: Callable[[], Any]
    value: Callable[[Any], float]
    rel: float = 1e-9


SILENT = {
    **dict.fromkeys(
        ("KTASelectionPath", "KTASelectionPathRegressor"),
        "a path of weights in closed form and a machine at every point: no single problem has a value",
    ),
    "VisualRank": "a random walk: nothing is minimised",
}
"""Estimators that publish no objective, each with its reason."""


# -- linear machines ---------------------------------------------------------------------------------------------------------------


def forms(rows: np.ndarray) -> dict[str, Any]:
    return {"dense": rows, "csr": sp.csr_array(rows), "csc": sp.csc_array(rows)}


def fgm_cases():
    for loss in ("squared_hinge", "logistic"):
        for bias in (False, True):
            for form, rows in forms(X).items():
                given = {"B": 2, "C": 2.0, "loss": loss, "fit_intercept": bias, "allow_repeat": False, "max_rounds": 3}
                yield Case(
                    f"FGMClassifier-{loss}-{bias}-{form}",
                    lambda given=given, rows=rows: api.FGMClassifier(**given, scale=None).fit(rows, LABELS),
                    lambda model: told.fgm(model, X, LABELS),
                )
    for kind, loss, y in (
        (api.FGMRegressor, "squared", 1e3 * Y),
        (api.FGMRegressor, "squared_epsilon_insensitive", Y),
        (api.FGMRegressor, "huber", Y),
        (api.FGMClassifier, "squared_hinge", LABELS),
        (api.FGMClassifier, "logistic", LABELS),
    ):
        for bias, beside in ((False, None), (True, None), (False, ASIDE), (True, ASIDE)):
            if kind is api.FGMClassifier and beside is None:
                continue
            given = {"B": 2, "C": 2.0, "loss": loss, "fit_intercept": bias, "allow_repeat": False, "max_rounds": 3}
            yield Case(
                f"{kind.__name__}-{loss}-{bias}-{'none' if beside is None else 'covariates'}",
                lambda kind=kind, given=given, y=y, beside=beside: kind(**given, scale=None).fit(X, y, covariates=beside),
                lambda model, y=y, beside=beside: told.fgm(model, X, y, beside),
            )


def rows_for(algorithm: str, loss: str) -> np.ndarray:
    """Rows for linear machines with groups: a stream has one gamma for all columns, and Newton's models sweep too long over huge ones."""
    return X if algorithm == "fista" and loss != "logistic" else TAME


def group_lasso_cases():
    for algorithm in ("da", "fobos", "fista"):
        for bias in (False, True):
            for loss, kind, y in (
                ("half squared", api.GroupLassoRegressor, Y),
                ("logistic", api.GroupLassoClassifier, LABELS),
                ("hinge", api.GroupLassoClassifier, LABELS),
            ):
                rows = rows_for(algorithm, loss)
                for penalty, r in (("gl", 0.0), ("sgl", 0.3), ("linf", 0.0)):
                    if (penalty, loss, algorithm) == ("linf", "hinge", "fista"):
                        continue
                    given = {
                        "penalty": penalty,
                        "lam": 0.02,
                        "gamma": 2000.0,
                        "groups": GROUPS,
                        "r": r,
                        "algorithm": algorithm,
                    }
                    given |= {"fit_intercept": bias, "epochs": 3, "batch_size": 7, "tol": 1e-3, "max_iter": 5 if loss == "hinge" else 300}
                    given |= {} if kind is api.GroupLassoRegressor else {"loss": loss}
                    yield Case(
                        f"{kind.__name__}-{algorithm}-{loss}-{bias}-{penalty}",
                        lambda kind=kind, given=given, rows=rows, y=y: kind(**given, scale=None).fit(rows, y),
                        lambda model, rows=rows, y=y, loss=loss, r=r: told.group_lasso(model, rows, y, GROUPS, loss, r),
                    )


def selector_cases():
    for algorithm in ("da", "fista"):
        for bias in (False, True):
            for loss, y in (("squared", Y), ("logistic", LABELS), ("hinge", LABELS)):
                rows = rows_for(algorithm, loss)
                for penalty, refit in (("imtfs", None), ("amtfs", None), ("mtfts", None if loss == "hinge" else 0.01)):
                    given = {
                        "penalty": penalty,
                        "lam": 0.05,
                        "gamma": 2000.0,
                        "loss": loss,
                        "algorithm": algorithm,
                        "fit_intercept": bias,
                    }
                    given |= {"refit": refit, "tol": 1e-3, "max_iter": 300, "epochs": 3}
                    yield Case(
                        f"MultiTaskSelector-{algorithm}-{loss}-{bias}-{penalty}",
                        lambda given=given, rows=rows, y=y: api.MultiTaskSelector(**given, scale=None).fit(rows, y, TASK),
                        lambda model, rows=rows, y=y, loss=loss: told.selector(
                            model, rows, y, TASK, "half squared" if loss == "squared" else loss
                        ),
                    )


# -- machines on kernels -----------------------------------------------------------------------------------------------------------

CLOSE = 2e-6
"""What kernels in float32 leave of an objective."""


def kernel_cases():
    K = told.grams(KERNELS, X)
    mkl = {"kernels": KERNELS, "C": 1.5, "tol": 1e-3}
    tasks = {**mkl, "tol": 1e-2}
    one = told.signs(LABELS)
    each = [np.where(label == THREE, 1.0, -1.0) for label in "abc"]
    sets = {"constraint": "elastic_net"}, {"constraint": "simplex"}, {"constraint": "l1_lp", "p": 3.0}, {"constraint": "box", "B": 2}
    for options in sets:
        given = {**mkl, **options}
        yield Case(
            f"MKLClassifier-{options['constraint']}",
            lambda given=given: api.MKLClassifier(**given, scale=None).fit(X, LABELS),
            lambda model: told.mkl(model, K, [one], "hinge"),
            CLOSE,
        )
    for loss, published in (("squared_hinge", "half squared_hinge"), ("logistic", "logistic")):
        yield Case(
            f"MKLClassifier-{loss}",
            lambda loss=loss: api.MKLClassifier(**mkl, loss=loss, scale=None).fit(X, THREE),
            lambda model, published=published: told.mkl(model, K, each, published),
            CLOSE,
        )
    yield Case(
        "MKLRegressor-squared",
        lambda: api.MKLRegressor(**mkl, loss="squared", scale=None).fit(X, Y),
        lambda model: told.mkl(model, K, [Y], "squared"),
        CLOSE,
    )
    yield Case(
        "MKLClassifier-three",
        lambda: api.MKLClassifier(**mkl, scale=None).fit(X, THREE),
        lambda model: told.mkl(model, K, each, "hinge"),
        CLOSE,
    )
    yield Case(
        "MKLRegressor",
        lambda: api.MKLRegressor(**mkl, scale=None).fit(X, Y),
        lambda model: told.mkl(model, K, [Y], "epsilon_insensitive"),
        CLOSE,
    )
    layered = KERNELS[:2] + KERNELS[3:5]
    yield Case(
        "TwoLayerMKLClassifier",
        lambda: api.TwoLayerMKLClassifier(layered, C=1.0, penalty=1.0, max_iter=5, scale=None).fit(X, LABELS),
        lambda model: told.two_layer(model, told.grams(layered, X), one),
        1e-5,
    )
    yield Case(
        "TwoLayerMKLRegressor",
        lambda: api.TwoLayerMKLRegressor(layered, C=1.0, penalty=1.0, max_iter=5, scale=None).fit(X, 100.0 * Y),
        lambda model: told.two_layer(model, told.grams(layered, X), 100.0 * Y, "epsilon_insensitive"),
        1e-5,
    )
    for kind, y, loss in (
        (api.MultiTaskMKLClassifier, LABELS, "hinge"),
        (api.MultiTaskMKLRegressor, Y, "squared"),
        (api.MultiTaskMKLRegressor, Y, "epsilon_insensitive"),
    ):
        for p, q in ((2.0, 1.0), (4.0, 1.5)):
            given = {**tasks, "kernels": KERNELS[:-1], "p": p, "q": q, "loss": loss}
            yield Case(
                f"{kind.__name__}-{loss}-{p:g}-{q:g}",
                lambda kind=kind, given=given, y=y: kind(**given, scale=None).fit(X, y, TASK),
                lambda model, y=y, loss=loss: told.multitask_mkl(model, by_tasks(KERNELS[:-1]), numbers(y), CODES, loss),
                CLOSE,
            )
    yield from subspace_cases()
    yield from latent_cases()


def numbers(y: np.ndarray) -> np.ndarray:
    return y if y.dtype.kind == "f" else told.signs(y)


def by_tasks(kernels: list[str]) -> np.ndarray:
    """Matrices over all rows: entries between tasks are not used, and the trace is that of the whole."""
    return told.grams(kernels, X)


def explicit() -> list[np.ndarray]:
    """Columns of linear kernels, of trace n."""
    parts = [told.as_kernels_read(X)[:, columns] for columns in COLUMNS]
    return [part * np.sqrt(N / np.sum(part**2)) if part.any() else part for part in parts]


LINEAR = [f"linear[{','.join(map(str, columns))}] trace" for columns in COLUMNS]


def subspace_cases():
    for kind, y, loss in (
        (api.SharedSubspaceMKLClassifier, LABELS, "hinge"),
        (api.SharedSubspaceMKLRegressor, Y, "squared"),
        (api.SharedSubspaceMKLRegressor, Y, "epsilon_insensitive"),
    ):
        given = {"kernels": LINEAR, "q": 1.5, "C": 0.7, "loss": loss, "tol": 1e-2, "max_iter": 40}
        yield Case(
            f"{kind.__name__}-{loss}",
            lambda kind=kind, given=given, y=y: kind(**given, scale=None).fit(X, y, TASK),
            lambda model, y=y, loss=loss: told.subspace(model, explicit(), numbers(y), CODES, loss),
            1e-5,
        )


def latent_cases():
    for kind, y, loss in ((api.LatentTaskMKLClassifier, LABELS, "hinge"), (api.LatentTaskMKLRegressor, Y, "squared")):
        for inverted in (False, True):
            given = {"kernels": KERNELS[:-1], "C": 0.5, "a": 1.2, "mu": 0.3, "loss": loss, "inverted": inverted, "tol": 1e-3}
            yield Case(
                f"{kind.__name__}-{loss}-{inverted}",
                lambda kind=kind, given=given, y=y: kind(**given, scale=None).fit(X, y, TASK),
                lambda model, y=y, loss=loss: told.latent(model, by_tasks(KERNELS[:-1]), numbers(y), CODES, loss),
                1e-5,
            )


def graph_cases():
    some = X[:, [0, 1, 3, 4, 5]]
    for kind, y, loss in (
        (api.HierarchicalKernelClassifier, LABELS, "hinge"),
        (api.HierarchicalKernelClassifier, LABELS, "squared_hinge"),
        (api.HierarchicalKernelRegressor, Y, "squared"),
    ):
        given = {"dag": "subsets(rbf(gamma=0.5))", "C": 2.0, "loss": loss, "tol": 1e-2}
        yield Case(
            f"{kind.__name__}-{loss}",
            lambda kind=kind, given=given, y=y: kind(**given, scale=None).fit(some, y),
            lambda model, y=y, loss=loss: told.subsets_of_features(model, some, 0.5, numbers(y), loss),
            1e-5,
        )
    given = {"C": 3.0, "n_thresholds": 2, "max_rounds": 4, "refine_cuts": False, "refit": False, "prune": 0.0}
    yield Case(
        "RuleEnsembleClassifier",
        lambda: api.RuleEnsembleClassifier(**given).fit(X, LABELS),
        lambda model: told.rules(model, X, told.signs(LABELS)),
        1e-6,
    )
    for loss, name in (("squared", "half squared"), ("epsilon_insensitive", "epsilon_insensitive")):
        yield Case(
            f"RuleEnsembleRegressor-{loss}",
            lambda loss=loss: api.RuleEnsembleRegressor(**given, loss=loss).fit(X, 100.0 * Y),
            lambda model, name=name: told.rules(model, X, 100.0 * Y, name),
            1e-6,
        )
    free, y = awkward(3, 30)[:, [0, 1, 3, 4, 5]], np.resize([-1, 1, -1, 1, 0], N)
    rows = np.vstack([some, free])
    K = np.exp(-0.2 * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    yield Case(
        "TriClassSVC",
        lambda: api.TriClassSVC(4.0, 0.5, 1.0, gamma=0.2, inner_tol=1e-5, scale=None).fit(some, y, free),
        lambda model: told.tri_class(model, K, y, 30),
        1e-5,
    )


# -- matrices that are learned -----------------------------------------------------------------------------------------------------


def matrix_cases():
    given = {"graph": "union", "n_neighbors": 4}
    for loss in ("linear", "squared_hinge", "square", "hinge"):
        yield Case(
            f"SimpleNPKL-{loss}",
            lambda loss=loss: api.SimpleNPKL(loss=loss, C=0.3, **given).fit(X, TRIPLES),
            lambda model: told.pairs_kernel(model, X, TRIPLES),
            1e-7,
        )
    yield Case("ColoredMVU", lambda: api.ColoredMVU(**given).fit(X, LABELS), lambda model: told.coloured(model, X, LABELS), 1e-6)
    yield Case("MinimumVolumeEmbedding", lambda: api.MinimumVolumeEmbedding(**given).fit(X), lambda model: told.volume(model, X), 1e-6)
    yield Case(
        "StructurePreservingEmbedding",
        lambda: api.StructurePreservingEmbedding(**given).fit(X),
        lambda model: told.structure(model, X),
        1e-6,
    )
    yield Case(
        "SemanticKernelRanker",
        lambda: api.SemanticKernelRanker(n_neighbors=4, tol=1e-4).fit(X, TAGS),
        lambda model: told.image_ranking(model, X, TAGS),
        1e-6,
    )
    for kernels, gamma1 in ((["rbf(gamma=0.5)[0:2]", "rbf(gamma=0.1)[0:6]", "linear[0:3] cosine"], 0.1), (["rbf(gamma=0.2)[0:6]"], 0.0)):
        for rows in (TAME, TAME[:, :6]):
            yield Case(
                f"UnsupervisedMKL-{len(kernels)}-{rows.shape[1]}",
                lambda kernels=kernels, gamma1=gamma1, rows=rows: api.UnsupervisedMKL(kernels, 5, gamma1, normalize="none").fit(rows),
                lambda model, kernels=kernels, rows=rows: told.unsupervised(model, rows, told.grams(kernels, rows)),
                1e-5,
            )
    for kind in ("difference", "mlpk", "tensor"):
        kernels = ["rbf(gamma=0.5)[0:2]", "rbf(gamma=0.2)[3:6]"]
        yield Case(
            f"SocialStrengthRanker-{kind}",
            lambda kind=kind, kernels=kernels: api.SocialStrengthRanker(0.1, kind, kernels=kernels, normalize="none").fit(X, PAIRS, LINKS),
            lambda model, kernels=kernels: told.strength(model, told.grams(kernels, X), PAIRS, LINKS),
            1e-5,
        )


CASES = [
    *fgm_cases(),
    *group_lasso_cases(),
    *selector_cases(),
    *kernel_cases(),
    *graph_cases(),
    *matrix_cases(),
]


@pytest.fixture(autouse=True)
def _quiet():
    """Fits that end at their limit of steps are as good here: their objective is that of where they ended."""
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_objective_is_that_of_what_is_published(case):
    model = case.fit()
    assert np.isfinite(model.objective_)
    assert model.objective_ == pytest.approx(case.value(model), rel=case.rel, abs=1e-12)


# -- stores of every scaling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["none", "unit-column", "standard", "unit-row"])
@pytest.mark.parametrize("sparse", [False, True])
def test_coefficients_of_scaled_stores_are_for_columns_as_given(tmp_path, scale, sparse):
    """What is published is for the columns as they were given; the penalty is on the columns as they were learned."""
    ingest((sp.csr_array(TAME) if sparse else TAME, LABELS), tmp_path / "s", scale=scale)
    rows = TAME / np.linalg.norm(TAME, axis=1)[:, None] if scale == "unit-row" else TAME
    sizes = {"unit-column": np.linalg.norm(TAME, axis=0), "standard": TAME.std(axis=0)}.get(scale, np.ones(D))
    y = told.signs(LABELS)
    for bias in (False, True):
        machine = api.FGMClassifier(2, 2.0, fit_intercept=bias, allow_repeat=False, max_rounds=3, scale=None).fit(tmp_path / "s")
        values, lengths = rows @ machine.coef_[0] + machine.intercept_[0], machine.coef_[0] * sizes
        cuts = sum(np.linalg.norm(lengths[cut]) for cut in machine.cuts_)
        assert machine.objective_ == pytest.approx(0.5 * cuts**2 + told.losses("squared_hinge", y, values).sum(), rel=1e-9)
        for algorithm in ("da", "fobos", "fista"):
            given = {"scale": None, "algorithm": algorithm, "fit_intercept": bias}
            lasso = api.GroupLassoClassifier(lam=0.02, gamma=200.0, batch_size=7, tol=1e-3, **given).fit(tmp_path / "s")
            values = rows @ lasso.coef_[0] + lasso.intercept_[0]
            penalty = 0.02 * np.abs(lasso.coef_[0] * sizes).sum()
            assert lasso.objective_ == pytest.approx(told.losses("logistic", y, values).mean() + penalty, rel=1e-9)
            np.testing.assert_allclose(lasso.decision_function(TAME), values, atol=1e-9)
            centred = scale == "standard" or (algorithm == "fista" and bias)
            assert not (centred and lasso.coef_[0, [3, 7]].any())


# -- the table is whole ------------------------------------------------------------------------------------------------------------


def estimators() -> set[str]:
    """Names of the estimators of all methods, and of those that are offered beside them; one that searches ends as one that does not."""
    found = {name for info in METHODS.values() for name in info.estimators}
    searches = {name for info in METHODS.values() for name in info.cross_validated}
    for name in api.__all__:
        item = getattr(api, name)
        if inspect.isclass(item) and hasattr(item, "fit") and hasattr(item, "get_params"):
            found.add(name)
    return found - searches


def test_every_estimator_has_a_case_or_a_reason():
    named = {case.name.partition("-")[0] for case in CASES}
    assert named | set(SILENT) == estimators()
    assert not named & set(SILENT) and all(SILENT.values())


@pytest.mark.parametrize("name", SILENT)
def test_what_publishes_no_objective_says_none(name):
    item = getattr(api, name, None) or getattr(importlib.import_module("gramplane.pipeline.methods.kta_path.estimator"), name)
    assert "objective_" not in inspect.getsource(item) and "objective_" not in (item.__doc__ or "")
