"""The rows of :mod:`benchmarks.against`: data, and calls on them, for whatever version of gramplane this process imports.

Parameters are explicit, so that a default that changed changes no row; `BEFORE` has the values of before of parameters that came later.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks._harness import HELD

BEFORE: dict[str, dict[str, Any]] = {
    "": {"scale": None},
    "MultiTaskSelector": {"fit_intercept": False},
    "KTASelectionPath": {"p": None},
    "TriClassSVC": {"validation": 0, "irrelevant_label": 0},
    "RuleEnsembleClassifier": {"rest": 1e-4},
    "HierarchicalKernelClassifier": {"rest": None, "max_visits": 20_000},
    "SimpleNPKL": {"C": 1.0, "graph": "mutual"},
    "StructurePreservingEmbedding": {"C": 1.0},
}
"""Defaults that later versions changed, and parameters that a version may not have, with what it did before; those of all first."""

Call = Callable[[], Any]
Rows = Iterator[tuple[str, Call]]
SCALED = ", default scale"  # end of the names of fits at their default scale
FGM = {"max_rounds": 10, "fit_intercept": False}
STREAM = {"penalty": "l1", "lam": 5e-5, "gamma": 2e-4, "batch_size": 1000, "algorithm": "da", "fit_intercept": False, "shuffle": False}


def made(name: str, **given: Any) -> Any:
    """Return an estimator, parameters of `BEFORE` with their value of before."""
    kind, before = _kind(name)
    return kind(**{**before, **given})


@cache
def _kind(name: str) -> tuple[Any, dict[str, Any]]:
    import gramplane.pipeline as public

    kind = getattr(public, name)
    known = kind().get_params()
    return kind, {key: value for key, value in {**BEFORE[""], **BEFORE.get(name, {})}.items() if key in known}


def by_default(name: str, **given: Any) -> Any:
    """Return an estimator as the version makes it, without the values of `BEFORE`."""
    return _kind(name)[0](**given)


def dense_rows() -> Rows:
    """Wide dense data: feature selection of columns, groups and pairs, at fixed and at the default scale; group lasso; tasks."""
    g = np.random.default_rng(0)
    X = g.standard_normal((4096, 4096))
    y, columns = np.sign(X[:, :20].sum(axis=1)), np.asfortranarray(X.astype(np.float32))
    groups = {"B": 5, "C": 1.0, "groups": np.arange(4096) // 8, **FGM, "max_rounds": 5}
    for kind, scale in ((made, ""), (by_default, SCALED)):
        yield f"fgm dense 4096 x 4096{scale}", lambda kind=kind: kind("FGMClassifier", B=30, C=10.0, **FGM).fit(X, y)
        yield f"fgm dense float32 columns{scale}", lambda kind=kind: kind("FGMClassifier", B=10, C=1.0, **FGM).fit(columns, y)
        yield f"fgm dense groups{scale}", lambda kind=kind: kind("FGMClassifier", **groups).fit(X, y)
        yield (
            f"fgm 1000 x 100, 20 fits{scale}",
            lambda kind=kind: [kind("FGMClassifier", B=2, C=1.0, **FGM).fit(X[:1000, :100], y[:1000]) for _ in range(20)],
        )
    pairs = {"B": 10, "C": 1.0, "feature_map": "poly2", **FGM, "max_rounds": 5}
    yield "fgm dense pairs", lambda: made("FGMClassifier", **pairs).fit(X[:2000, :1000], y[:2000])
    lasso = {"penalty": "gl", "lam": 0.01, "groups": np.arange(1000) // 10, "algorithm": "fista", "fit_intercept": False}
    yield "group lasso batch", lambda: made("GroupLassoClassifier", **lasso).fit(X[:2000, :1000], y[:2000])
    selector = {"penalty": "imtfs", "lam": 0.05, "algorithm": "fista"}
    yield "multi-task selection", lambda: made("MultiTaskSelector", **selector).fit(X[:2000, :500], y[:2000], np.arange(2000) % 10)


def sparse_rows() -> Rows:
    """Sparse data, 20,000 x 200,000: feature selection and streams."""
    g, nonzeros = np.random.default_rng(0), 800_000
    places = (g.integers(0, 20000, nonzeros), g.integers(0, 200000, nonzeros))
    X = sp.csr_matrix((g.random(nonzeros), places), shape=(20000, 200000))
    X.sum_duplicates()
    w = np.zeros(200000)
    w[:200] = g.standard_normal(200)
    y, columns = np.where(X @ w + 1e-3 * g.standard_normal(20000) > 0, 1, -1), X.tocsc()

    def pieces() -> Any:
        model = made("GroupLassoClassifier", **STREAM)
        for k in range(0, 20000, 1000):
            model.partial_fit(X[k : k + 1000], y[k : k + 1000], classes=[-1, 1])
        return model

    yield "fgm sparse rows", lambda: made("FGMClassifier", B=20, C=50.0, **FGM).fit(X, y)
    yield "fgm sparse columns", lambda: made("FGMClassifier", B=20, C=50.0, **FGM).fit(columns, y)
    yield "fgm sparse logistic", lambda: made("FGMClassifier", B=20, C=50.0, loss="logistic", **FGM).fit(columns, y)
    yield "group lasso stream", lambda: made("GroupLassoClassifier", **STREAM).fit(X, y)
    yield "group lasso partial_fit", pieces


def kernel_rows() -> Rows:
    """Machines on kernels, rules and matrices, a few hundred to 2,000 rows."""
    g, n, d = np.random.default_rng(0), 2000, 20
    X = g.standard_normal((n, d))
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * X[:, 2] > 0, 1, -1)
    kernels = [f"rbf(gamma={2.0**k})" for k in range(-6, 4)] + [f"rbf(gamma={2.0**k})[{j}]" for k in (-2, 0, 2) for j in range(d)]
    wide, signs, few = g.standard_normal((300, 1000)), np.sign(g.standard_normal(300)), np.repeat(np.arange(5), 60)
    pairs = [(int(i), int(j), 1 if y[i] == y[j] else -1) for i, j in g.integers(0, 1500, (800, 2)) if i != j]
    latent = {"kernels": kernels[:4], "C": 1.0, "tol": 1e-2, "inverted": False}
    yield "mkl 70 kernels", lambda: made("MKLClassifier", kernels=kernels, C=1.0, v=0.5, tol=1e-2).fit(X, y)
    yield "mkl regression", lambda: made("MKLRegressor", kernels=kernels[:20], C=1.0, tol=1e-2).fit(X, X[:, 0] ** 2 + X[:, 1])
    yield "kta path 1000 columns", lambda: made("KTASelectionPath", kernel="rbf", lam1=0.1, lam2=0.1).fit(wide, signs)
    many = np.repeat(np.arange(10), 100)
    yield "multi-task mkl", lambda: made("MultiTaskMKLClassifier", kernels=kernels[:20], p=2.0, C=1.0).fit(X[:1000], y[:1000], many)
    yield "shared subspace", lambda: made("SharedSubspaceMKLClassifier", kernels=kernels[:6], C=1.0).fit(X[:300], y[:300], few)
    yield "latent tasks", lambda: made("LatentTaskMKLClassifier", **latent).fit(X[:300], y[:300], few)
    yield "tri-class", lambda: made("TriClassSVC", C=1.0, C_unlabelled=0.1).fit(X[:200], y[:200], X_unlabelled=X[200:1000])
    yield "rules", lambda: made("RuleEnsembleClassifier", C=10.0, rho=1.1).fit(X[:, :10], y)
    yield "hierarchical", lambda: made("HierarchicalKernelClassifier", C=1.0).fit(X[:300, :6], y[:300])
    yield "two layers", lambda: made("TwoLayerMKLClassifier", kernels=kernels[:5], C=1.0).fit(X[:500], y[:500])
    yield "unsupervised", lambda: made("UnsupervisedMKL", kernels=kernels[:8]).fit(X[:800])
    yield "npkl 1500", lambda: made("SimpleNPKL", loss="linear").fit(X[:1500], pairs)
    yield "colored mvu 200", lambda: made("ColoredMVU").fit(X[:200], y[:200])
    yield "spe 100", lambda: made("StructurePreservingEmbedding").fit(X[:100])


def headline_sparse() -> Rows:
    """The README's sparse row: 10,000 x 500,000, columns as frequent as words, 200 features."""
    g, n, d, a_row = np.random.default_rng(0), 10_000, 500_000, 100
    columns = np.minimum(np.exp(g.random(n * a_row) * np.log(d)), d - 1).astype(np.int64)
    X = sp.csr_matrix((np.abs(g.standard_normal(n * a_row)) + 0.1, (np.repeat(np.arange(n), a_row), columns)), shape=(n, d))
    X.sum_duplicates()
    w = np.zeros(d)
    w[g.choice(3000, 100, replace=False)] = g.choice([-1.0, 1.0], 100)
    values, columns_of = X @ w, X.tocsc()
    y = np.where(values > np.median(values), 1, -1)
    yield "README: fgm 10000 x 500000 from rows", lambda: made("FGMClassifier", B=20, C=10.0, **FGM).fit(X, y)
    yield "README: fgm 10000 x 500000 from columns", lambda: made("FGMClassifier", B=20, C=10.0, **FGM).fit(columns_of, y)


def headline_kernels() -> Rows:
    """The README's rows on kernels, rules and paths: sizes and parameters as in the programs of these rows."""
    g = np.random.default_rng(2000)
    X = g.standard_normal((2000, 20))
    z = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] - 0.5 * X[:, 4] ** 2 + 0.5
    y = np.where(z + 0.5 * g.standard_normal(2000) > 0, 1, -1)
    parts = ["", *(f"[{j}]" for j in range(20))]
    bank = [f"rbf(gamma={width / (1 if part else 20):.6g}){part}" for part in parts for width in np.geomspace(0.05, 10.0, 10)][:200]
    yield "README: mkl 200 kernels, 2000 rows", lambda: made("MKLClassifier", kernels=bank, C=1.0, v=0.5, tol=1e-3).fit(X, y)
    rows = g.standard_normal((3000, 20))
    truth = ((rows[:, 0] > 0.3) & (rows[:, 1] <= -0.2)) | ((rows[:, 2] > 0) & (rows[:, 3] <= 0.5) & (rows[:, 4] > 0))
    labels = np.where(g.random(3000) < 0.05, ~truth, truth).astype(int)
    yield "README: rules 3000 x 20", lambda: made("RuleEnsembleClassifier", C=30.0, rho=1.1).fit(rows, labels)
    wide = np.random.default_rng(0).standard_normal((300, 1000))
    signs = np.where(wide[:, :10].sum(axis=1) > 0, 1, -1)
    yield "README: kta path 300 x 1000, 50 points", lambda: made("KTASelectionPath", p_end=1.02, dp=0.02, n_machines=1).fit(wide, signs)


def headline_groups() -> Rows:
    """The README's batch group lasso: squared loss, groups of ten, 1,000,000 x 160 and 8,000 x 3,000."""
    for n, d, share in ((8000, 3000, 10.0), (1_000_000, 160, 50.0)):
        g = np.random.default_rng(0)
        X = np.sqrt(0.5) * (g.standard_normal((n, d)) + np.repeat(g.standard_normal((n, d // 10)), 10, axis=1))
        w = np.zeros(d)
        w[:50] = g.standard_normal(50)
        y = X @ w
        y += 0.3 * y.std() * g.standard_normal(n)
        lam = float(np.linalg.norm((X.T @ y).reshape(-1, 10), axis=1).max()) / n / share / np.sqrt(10)
        given = {"algorithm": "fista", "groups": np.arange(d) // 10, "lam": lam, "tol": 1e-4, "fit_intercept": False}
        yield f"README: group lasso {n} x {d}", lambda X=X, y=y, given=given: made("GroupLassoRegressor", **given).fit(X, y)


def prediction_rows() -> Rows:
    """Predictions of one row, 100 times, and of 10,000."""
    g = np.random.default_rng(0)
    X, new = g.standard_normal((1000, 30)), g.standard_normal((10_000, 30))
    y = np.where(X[:, 0] + X[:, 1] * X[:, 2] > 0, 1, -1)
    kinds = {
        "fgm": ("FGMClassifier", {"B": 5, "C": 1.0, **FGM}),
        "mkl": ("MKLClassifier", {"kernels": ["rbf(gamma=0.05)", "linear", "rbf(gamma=0.5)[0:3]"], "C": 1.0, "v": 0.5, "tol": 1e-2}),
        "rules": ("RuleEnsembleClassifier", {"C": 3.0, "rho": 1.1, "n_thresholds": 3, "max_rules": 60}),
    }
    for name, (kind, given) in kinds.items():
        fitted: list[Any] = []

        def model(fitted: list[Any] = fitted, kind: str = kind, given: dict[str, Any] = given) -> Any:
            # In the first call, which is not counted.
            fitted[:] = fitted or [made(kind, **given).fit(X, y)]
            return fitted[0]

        yield f"{name} predicts 1 row, 100 times", lambda model=model: [model().predict(new[k : k + 1]) for k in range(100)]
        yield f"{name} predicts 10000 rows", lambda model=model: model().predict(new)


PARTS = (dense_rows, sparse_rows, kernel_rows, headline_sparse, headline_kernels, headline_groups, prediction_rows)
"""Rows that share their data: these are made when the first row is asked for."""


def version() -> dict[str, Any]:
    """Served: where gramplane lies for this process."""
    import gramplane.pipeline

    return {"file": str(gramplane.pipeline.__file__)}


def prepare(part: str) -> dict[str, Any]:
    """Served: make the data of a part, and forget those of the part before; its rows."""
    HELD.clear()
    HELD.update(next(kind for kind in PARTS if kind.__name__ == part)())
    return {"rows": list(HELD)}


def measure(row: str, reps: int = 1) -> dict[str, Any]:
    """Served: the least processor seconds of some calls, or why there are none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {"cpu": min(bench.clocked(HELD[row])[0]["cpu"] for _ in range(reps))}
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"[:160]}


if __name__ == "__main__":
    bench.serve()
