"""Cross-validation along paths: the cost of a CV estimator against one fit, and against `GridSearchCV` of the same points.

Five folds, and ten points a fold or more: values of the parameter that the path follows, for FGM and the kernel selection path also the
rounds and the p of every fit. One fit is that of the plain estimator at its defaults, and beside it the mean of fits at all points of
the search on all rows. `GridSearchCV` fits the same points on the same folds, one process, without a refit. Single runs; processor
seconds. ``--cases FGM,rules`` takes the cases with such a name.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.preprocessing import scale

import gramplane

FOLDS, POINTS, TARGET = 5, 10, 12


@dataclass(frozen=True)
class Case:
    """An estimator that searches, its data, and its settings."""

    name: str
    estimator: str
    data: Callable[[bool], tuple[Any, np.ndarray]]
    search: dict[str, Any]
    fixed: dict[str, Any] = field(default_factory=dict)  # of all three


def planted(n: int, d: int, regression: bool = False, density: float = 1.0) -> Callable[[bool], tuple[Any, np.ndarray]]:
    """Return what makes rows of which thirty columns matter."""

    def make(tiny: bool) -> tuple[Any, np.ndarray]:
        rng, (rows, columns) = np.random.default_rng(0), (n // 10, max(d // 10, 40)) if tiny else (n, d)
        X = (
            rng.standard_normal((rows, columns))
            if density == 1.0
            else sp.random_array((rows, columns), density=density, rng=rng, format="csr")
        )
        values = X[:, :30] @ rng.standard_normal(30)
        values = values + 0.4 * values.std() * rng.standard_normal(rows)
        return X, values if regression else (values > 0).astype(int)

    return make


def shipped(load: Callable[..., Any]) -> Callable[[bool], tuple[Any, np.ndarray]]:
    """Return what loads a set of scikit-learn with columns scaled, or a third of its rows."""

    def make(tiny: bool) -> tuple[Any, np.ndarray]:
        X, y = load(return_X_y=True)
        return scale(X)[:: 3 if tiny else 1], y[:: 3 if tiny else 1]

    return make


KERNELS = {"kernels": [*(f"rbf(gamma={g})" for g in (0.003, 0.01, 0.03, 0.1, 0.3)), "linear"]}
CASES = (
    Case("FGM, 10 rounds, sparse 20,000 x 200,000", "FGMClassifierCV", planted(20_000, 200_000, density=1e-3), {"Cs": 1}),
    Case("FGM, 10 C x 10 rounds, sparse 20,000 x 200,000", "FGMClassifierCV", planted(20_000, 200_000, density=1e-3), {"Cs": POINTS}),
    Case("FGM, 10 C x 10 rounds, dense 2,000 x 10,000", "FGMClassifierCV", planted(2_000, 10_000), {"Cs": POINTS}),
    Case("FGM of targets, 10 C x 10 rounds, dense 2,000 x 10,000", "FGMRegressorCV", planted(2_000, 10_000, True), {"Cs": POINTS}),
    Case("group lasso, dense 2,000 x 5,000", "GroupLassoClassifierCV", planted(2_000, 5_000), {"lams": POINTS}),
    Case("group lasso, dense 50,000 x 200", "GroupLassoClassifierCV", planted(50_000, 200), {"lams": POINTS}),
    Case("group lasso of targets, dense 50,000 x 200", "GroupLassoRegressorCV", planted(50_000, 200, True), {"lams": POINTS}),
    Case("kernels, breast cancer, default bank", "MKLClassifierCV", shipped(load_breast_cancer), {"Cs": POINTS}),
    Case("kernels, 2,000 x 40, six kernels", "MKLClassifierCV", planted(2_000, 40), {"Cs": POINTS}, KERNELS),
    Case("kernels of targets, diabetes, default bank", "MKLRegressorCV", shipped(load_diabetes), {"Cs": POINTS}),
    Case("kernel selection path, 10 p, 1,000 x 500", "KTASelectionPathCV", planted(1_000, 500), {"Cs": [1.0]}, {"n_machines": POINTS}),
    Case("kernel selection path, 3 C x 10 p, 1,000 x 500", "KTASelectionPathCV", planted(1_000, 500), {}, {"n_machines": POINTS}),
    Case("rules, breast cancer", "RuleEnsembleClassifierCV", shipped(load_breast_cancer), {"Cs": POINTS}),
    Case("kernels of tasks, 2,000 x 40, ten tasks", "MultiTaskMKLClassifierCV", planted(2_000, 40), {"Cs": POINTS}, KERNELS),
)


def folds_of(case: Case, y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    kind = KFold if "Regressor" in case.estimator else StratifiedKFold
    return list(kind(FOLDS, shuffle=True, random_state=0).split(y, y))


def figures(case: Case, tiny: bool, *, with_peer: bool) -> dict[str, Any]:
    """Return processor seconds of the search, of fits alone, and of the peer's search, and both scores."""
    X, y = case.data(tiny)
    kind, plain = getattr(gramplane, case.estimator), getattr(gramplane, case.estimator.removesuffix("CV"))
    more = {"task": np.arange(len(y)) % 10} if "MultiTask" in case.estimator else {}
    cv = folds_of(case, y)

    def fit(machine: Any) -> Callable[[], Any]:
        return lambda: machine.fit(X, y, **more)

    fit(kind(**case.fixed, **case.search, cv=cv[:1], refit=False))()  # compiled functions are loaded
    search, found = bench.clocked(fit(kind(**case.fixed, **case.search, cv=cv)))
    one = min(bench.clocked(fit(plain(**case.fixed)))[0]["cpu"] for _ in range(3))
    points = [{name: value for name, value in params.items() if name != "max_rounds"} for params in found.cv_results_["params"]]
    distinct = list({repr(point): point for point in points}.values())
    alone = [bench.clocked(fit(plain(**{**case.fixed, **point})))[0]["cpu"] for point in distinct]
    out = {"cv": search["cpu"], "wall": search["seconds"], "one": one, "mean": float(np.mean(alone)), "points": len(points)}
    out |= {"score": found.best_score_, "fits": len(distinct)}
    if with_peer and not more:
        # scikit-learn cannot know that rounds come for free: it fits every one.
        grid = [{name: [value] for name, value in params.items()} for params in found.cv_results_["params"]]
        peer, sought = bench.clocked(fit(GridSearchCV(plain(**case.fixed), grid, cv=cv, refit=False)))
        out |= {"peer": peer["cpu"], "peer_score": sought.best_score_}
    return out


def tell(report: bench.Report, case: Case, row: dict[str, Any]) -> None:
    report.value(f"{case.name}: search over one fit at defaults", row["cv"] / row["one"], f"<= {TARGET}")
    report.value(f"{case.name}: search over a fit at its points, mean", row["cv"] / row["mean"])
    if "peer" in row:
        report.value(f"{case.name}: search over GridSearchCV", row["cv"] / row["peer"])
    peer = f"; GridSearchCV {row['peer']:.3g} s, score {row['peer_score']:.4f}" if "peer" in row else ""
    sizes = f"{FOLDS} folds x {row['points']} points, {row['cv']:.3g} s (wall {row['wall']:.3g} s)"
    report.note(f"{case.name}: {sizes}, one fit {row['one']:.3g} s, mean {row['mean']:.3g} s, score {row['score']:.4f}{peer}")


@bench.program(cases="", keep="", no_peer=False)
def cv_paths(report: bench.Report, options: Any) -> None:
    report.title, keep = "cross-validation along paths", bench.Parts(options.keep, {"tiny": options.tiny})
    for case in CASES:
        if any(part in case.name for part in options.cases.split(",")):
            tell(report, case, keep(case.name, lambda case=case: figures(case, options.tiny, with_peer=not options.no_peer)))


if __name__ == "__main__":
    bench.run()
