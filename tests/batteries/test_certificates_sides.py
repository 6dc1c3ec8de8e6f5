"""Certificates on both sides of every size at which a method computes in another way.

Each problem is solved on the plain side, tightly, and on the fast one; the objectives are computed again from what the models publish, by
definitions in plain NumPy that share nothing with either side. With P and D objective and bound (objective less gap) of a fit, and p* the
optimum: D <= p* <= P of both, so that D of the fast side may not exceed P of the plain one, nor P fall below its D. Both are tight enough
that a bound, or an objective, wrong by a thousandth is caught.

======================== ============================================================== ========================================
method                   size, and what changes there                                   held to the truth by
======================== ============================================================== ========================================
fgm                      ``ROW_BLOCK`` rows and ``DRIVER_SHARE`` of the columns: rows   here
                         stay on workers, sums of blocks
group-lasso (fista)      ``GRAM_COLUMNS``: second moments, beyond it a working set of   here
                         columns, ``FIRST_GROUPS`` at first
multitask-selector       ``MOMENT_SHARE``: second moments, beyond it the rows           here
mkl                      ``LEAST_KERNELS``: bounds over all from a working set of them  here
mkl, tri-class-svm,      ``MATRIX_SHARE``: whole sums, beyond it passes and a working   here (of ``mkl`` in
hierarchical-kernels,    set of variables (``decomposition.WORKING_SET``)               test_certificates_fast, too)
kta-path, latent-task-                                                                  (shared-subspace-mkl: test_pooled_machines)
mkl, shared-subspace-mkl
kta-path                 ``FEW`` machines: sums of their own, beyond it cells           no gap is claimed on the way
multitask-mkl, latent-   ``BANK_SHARE``: entries in memory, beyond it computed again    here
task-mkl
shared-subspace-mkl      ``LARGEST_SYSTEM``: interior path, beyond it a search          here; a cone solver in
                                                                                        test_pipeline_subspace_precision
rule-ensemble            ``LARGEST_SYSTEM``: one Newton system, beyond it one a task    test_certificates_fast
npkl                     ``DENSE``, ``WHOLE``, ``LEAST``, ``SHARE``: dense eigenpairs,  test_certificates_fast; here filtered
                         beyond them filtered ones. ``DENSE_BASE``: base by Lanczos     ones and base
colored-mvu              ``NEWTON_ROWS``: Newton steps, beyond it an ascent on those    here
mve                      the same steps and ascent                                      colored-mvu; the gap is that of the
                                                                                        last of its convex problems
spe                      none: more than a third of its eigenvalues is positive         test_pipeline_embedding
semantic-ranker          ``DENSE_BASE``: base by Lanczos                                here
social-strength          ``MAX_DENSE_PAIRS``: the pairs' matrix, beyond it products      here
social-strength          ``user_kernels.DENSE``: least eigenvalues by Lanczos           test_kernels_social
logistic duals           ``MANY`` steps of conjugate gradients, then a factorisation    here, of social-strength
machines in memory       ``smo_shrink``: variables at rest leave the matrix             test_kernels_smo
two-layer-mkl            ``LAYER_SHARE``                                                no gap is claimed: not convex. Bits:
                                                                                        test_pipeline_two_layer
unsupervised-mkl         ``CHUNK_ENTRIES``: pieces of the same sums                     no gap is claimed
streams                  pieces of the same sums                                        no gap is claimed
======================== ============================================================== ========================================

Sizes not named cut the same arithmetic into pieces (``TILE``, ``ROWS``, ``BATCH``, ``*_BYTES``): same bits by test of their own.
"""

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import gramplane.pipeline as api
from gramplane.kernels.jit import one_thread
from gramplane.pipeline import load_model, run_method
from gramplane.storage.ingest import ingest
from tests.support.oracles import published as told
from tests.support.oracles.multitask import few_rows, tube_optimum

_RNG = np.random.default_rng(7)
N = 90
X = _RNG.normal(size=(N, 6))
SIGNAL = X[:, 0] - X[:, 1] * X[:, 2] + 0.4 * _RNG.normal(size=N)
LABELS = np.where(np.median(SIGNAL) + 0.2 < SIGNAL, "up", "down")
CODES = np.arange(N) % 3
WIDE = _RNG.normal(size=(300, 40))
WIDE_Y = WIDE[:, 0] - WIDE[:, 1] + 0.5 * WIDE[:, 2] + 0.5 * _RNG.normal(size=300) + 0.3
WIDE_LABELS = np.where(WIDE_Y > 0, "up", "down")
ASIDE = np.c_[2000.0 + np.arange(300) % 7, 1e-5 * np.random.default_rng(8).normal(size=300)]
KERNELS = ["rbf(gamma=0.5)[0:2]", "rbf(gamma=0.2)", "linear[0:3]", "linear[3]", "poly(degree=2)[1,3]"]
MANY_KERNELS = [f"rbf(gamma={gamma})[{j}]" for j in range(6) for gamma in (0.05, 0.1, 0.2, 0.5, 1, 2, 5)]
LINEAR = ["linear[0,1]", "linear[2,3]", "linear[4]", "linear[5]"]
TRIPLES = [[i, j, 1 if LABELS[i] == LABELS[j] else -1] for i in range(0, N, 2) for j in (i + 1, i + 4) if j < N]
PAIRS = np.array([(i, (i + k) % N) for k in (1, 5, 9) for i in range(N)])
LINKS = (LABELS[PAIRS[:, 0]] == LABELS[PAIRS[:, 1]]).astype(int)
TAGS = [" ".join([f"{LABELS[i]}"] + [f"t{k}" for k in np.random.default_rng(i).integers(0, 9, 3)]) for i in range(N)]
SMALL = "gramplane.kernels.eigen.positive_part"
FILTERED = {f"{SMALL}.MAX_DENSE_ROWS": 10, f"{SMALL}.MAX_WHOLE_ROWS": 10, f"{SMALL}.MIN_BLOCK_ROWS": 10}
CHEBYSHEV = f"{SMALL}.chebyshev_positive"


@dataclass(frozen=True)
class Sides:
    """A problem with two sides.

    Attributes
    ----------
    method, params, extra
        As for ``run_method``; tolerances are those of both sides.
    value
        The objective from what a model publishes.
    fast
        What makes the fast side run: named sizes, and ``params``, ``driver_memory``.
    ran
        A function that only the fast side calls.
    plain
        What makes the plain side run, where that is not the ordinary way.
    rel
        Agreement of an objective with what is published.
    slack
        What float32 kernels leave of bounds, relative to the objective.
    data
        Rows, target, and options of the ingest.
    """

    method: str
    params: dict[str, Any]
    value: Callable[[Any], float] | None
    fast: dict[str, Any]
    ran: str
    plain: dict[str, Any] = field(default_factory=dict)
    rel: float = 1e-6
    slack: float = 1e-12
    data: tuple[Any, Any, dict[str, Any]] = (X, LABELS, {})
    extra: dict[str, Any] = field(default_factory=dict)


def gram_value(value, kernels=KERNELS, rows=X):
    """A value that needs the kernel matrices."""
    return lambda model: value(model, told.grams(kernels, rows))


def path_value(model):
    """A machine on the kernels of features at the end of the path."""
    weights, own = model.weights_at(model.p_), model.model_
    K = sum(
        weights[j] * np.exp(-((X[:, [j]] - X[:, j]) ** 2) / (2.0 * model.widths_[j] ** 2)) / model.traces_[j]
        for j in np.flatnonzero(weights)
    ) * (N / weights.sum())
    beta = np.zeros(N)
    beta[own.support_ids] = own.beta[0]
    return 0.5 * beta @ K @ beta + 3.0 * told.losses("hinge", SIGNS, K @ beta + own.intercepts[0]).sum()


def _passes(memory="100KiB"):
    return {"driver_memory": memory}


TASKS = (X, LABELS, {"task_column": CODES})
WIDE_TASKS = (WIDE, WIDE_Y, {"task_column": np.arange(300) % 3, "task": "regression"})
SIGNS = told.signs(LABELS)

FGM_ON_WORKERS = {
    "gramplane.pipeline.methods.fgm.designs.ROW_BLOCK": 64,
    "gramplane.pipeline.methods.fgm.designs.DRIVER_SHARE": 0.0,
}

SIDES = {
    "fgm": Sides(
        "fgm",
        {"scale": None, "B": 2, "C": 2.0, "allow_repeat": False, "max_rounds": 3, "inner_tol": 1e-7},
        lambda model: told.fgm(model, WIDE, WIDE_LABELS),
        FGM_ON_WORKERS,
        "gramplane.pipeline.methods.fgm.designs.RemoteDesign",
        data=(WIDE, WIDE_LABELS, {}),
    ),
    "fgm-logistic": Sides(
        "fgm",
        {
            "scale": None,
            "B": 2,
            "C": 2.0,
            "allow_repeat": False,
            "max_rounds": 3,
            "inner_tol": 1e-7,
            "loss": "logistic",
            "fit_intercept": True,
        },
        lambda model: told.fgm(model, WIDE, WIDE_LABELS),
        FGM_ON_WORKERS,
        "gramplane.pipeline.methods.fgm.designs.RemoteDesign",
        data=(WIDE, WIDE_LABELS, {}),
    ),
    "fgm-huber": Sides(
        "fgm",
        {"scale": None, "B": 2, "C": 2.0, "allow_repeat": False, "max_rounds": 3, "inner_tol": 1e-7, "loss": "huber", "delta": 0.7},
        lambda model: told.fgm(model, WIDE, WIDE_Y, ASIDE),
        FGM_ON_WORKERS,
        "gramplane.pipeline.methods.fgm.designs.RemoteDesign",
        data=(WIDE, WIDE_Y, {"task": "regression", "covariates": ASIDE}),
    ),
    "group-lasso": Sides(
        "group-lasso",
        {"scale": None, "lam": 0.05, "algorithm": "fista", "tol": 1e-7, "max_iter": 2000},
        lambda model: told.group_lasso(model, WIDE, WIDE_Y, np.arange(40), "half squared"),
        {"gramplane.pipeline.methods.group_lasso.memory.GRAM_COLUMNS": 10, "params": {"tol": 5e-4}},
        "gramplane.pipeline.methods.group_lasso.batch_problem.solve_rows",
        data=(WIDE, WIDE_Y, {"task": "regression"}),
    ),
    "group-lasso-screened": Sides(
        "group-lasso",
        {"scale": None, "lam": 0.05, "algorithm": "fista", "tol": 1e-7, "max_iter": 2000},
        lambda model: told.group_lasso(model, WIDE, WIDE_LABELS, np.arange(40), "logistic"),
        {
            "gramplane.pipeline.methods.group_lasso.batch_problem.FIRST_GROUPS": 2,
            "gramplane.pipeline.methods.group_lasso.batch_problem.MORE_GROUPS": 1,
        },
        "gramplane.pipeline.methods.group_lasso.batch_problem.solve_rows",
        {"gramplane.pipeline.methods.group_lasso.batch_problem.FIRST_GROUPS": 40},
        data=(WIDE, WIDE_LABELS, {}),
    ),
    "multitask-selector": Sides(
        "multitask-selector",
        {"scale": None, "penalty": "mtfts", "lam": 0.1, "loss": "squared", "algorithm": "fista", "tol": 1e-7, "max_iter": 5000},
        lambda model: told.selector(model, WIDE, WIDE_Y, np.arange(300) % 3, "half squared"),
        {"gramplane.pipeline.methods.multitask_selector.problem.MOMENT_SHARE": 0.0, "params": {"tol": 5e-4}},
        "gramplane.kernels.group_lasso.on_rows._Solver.fista",
        data=WIDE_TASKS,
    ),
    "mkl-working-set": Sides(
        "mkl",
        {"scale": None, "kernels": MANY_KERNELS, "C": 1.5, "tol": 1e-5, "constraint": "simplex"},
        gram_value(lambda model, K: told.mkl(model, K, [SIGNS], "hinge"), MANY_KERNELS),
        {},
        "gramplane.pipeline.methods.mkl.forms.certify_all_kernels",
        {"gramplane.pipeline.loops.kernel_weights.MIN_KERNELS_TO_SHRINK": 1000},
        slack=1e-6,
    ),
    "mkl-passes": Sides(
        "mkl",
        {"scale": None, "kernels": KERNELS[:3], "normalize": "none", "C": 1.5, "tol": 1e-5},
        gram_value(lambda model, K: told.mkl(model, K, [SIGNS], "hinge"), KERNELS[:3]),
        _passes("110KiB"),
        "gramplane.kernels.svm.smo.solve_decomposition",
        slack=1e-6,
    ),
    **{
        f"mkl-passes-{loss}": Sides(
            "mkl",
            {"scale": None, "kernels": KERNELS[:3], "normalize": "none", "C": 1.5, "tol": 1e-5, "loss": loss},
            gram_value(lambda model, K, published=published: told.mkl(model, K, [SIGNS], published), KERNELS[:3]),
            _passes("110KiB"),
            ran,
            slack=1e-6,
        )
        for loss, published, ran in (
            ("logistic", "logistic", "gramplane.pipeline.grams.weighted_sum.CombinedGram.matvec"),
            ("squared_hinge", "half squared_hinge", "gramplane.kernels.svm.smo.solve_decomposition"),
        )
    },
    "latent-task-mkl": Sides(
        "latent-task-mkl",
        {"scale": None, "kernels": KERNELS, "normalize": "none", "C": 0.5, "a": 1.2, "mu": 0.3, "tol": 1e-4, "threshold": 0.0},
        gram_value(lambda model, K: told.latent(model, K, SIGNS, CODES, "hinge")),
        {"params": {"grams": "recompute"}},
        "gramplane.pipeline.grams.grams.Grams._pass",
        {"params": {"grams": "memory"}},
        rel=1e-5,
        slack=1e-5,
        data=TASKS,
    ),
    "multitask-mkl": Sides(
        "multitask-mkl",
        {"scale": None, "kernels": KERNELS, "normalize": "none", "C": 1.0, "p": 4.0, "tol": 1e-4},
        gram_value(lambda model, K: told.multitask_mkl(model, K, SIGNS, CODES, "hinge")),
        {"params": {"grams": "recompute"}},
        "gramplane.pipeline.methods.multitask_mkl.grams.solves_pass",
        {"params": {"grams": "memory"}},
        slack=1e-5,
        data=TASKS,
    ),
    "shared-subspace-mkl": Sides(
        "shared-subspace-mkl",
        {"scale": None, "kernels": LINEAR, "normalize": "none", "q": 1.5, "C": 0.7, "tol": 4e-4, "max_iter": 400},
        lambda model: told.subspace(model, [X[:, part] for part in ([0, 1], [2, 3], [4], [5])], SIGNS, CODES, "hinge"),
        {"gramplane.pipeline.methods.shared_subspace_mkl.problem.MAX_SYSTEM_ROWS": 1},
        "gramplane.pipeline.methods.shared_subspace_mkl.problem.SubspaceProblem._choose_next",
        rel=1e-5,
        slack=1e-5,
        data=TASKS,
    ),
    "latent-task-mkl-pooled": Sides(
        "latent-task-mkl",
        {
            "scale": None,
            "kernels": KERNELS[:2],
            "normalize": "none",
            "C": 0.05,
            "a": 1.2,
            "mu": 0.3,
            "tol": 1e-4,
            "threshold": 0.0,
            "loss": "squared",
        },
        gram_value(lambda model, K: told.latent(model, K, WIDE_Y, np.arange(300) % 3, "squared"), KERNELS[:2], WIDE),
        {"params": {"grams": "recompute"}, **_passes("1MiB")},
        "gramplane.pipeline.grams.weighted_sum.CombinedGram",
        rel=1e-5,
        slack=1e-5,
        data=WIDE_TASKS,
    ),
    "tri-class-svm": Sides(
        "tri-class-svm",
        {"C": 4.0, "kernel": "rbf", "gamma": 0.2, "n_random": 1, "inner_tol": 1e-6, "irrelevant_label": 0},
        None,
        {**_passes("200KiB"), "gramplane.pipeline.grams.weighted_sum.MATRIX_SHARE": 0.1},
        "gramplane.pipeline.grams.weighted_sum.CombinedGram",
        slack=1e-6,
        data=(X, np.resize([-1, 1, -1, 1, 0], N), {}),
    ),
    "kta-path": Sides(
        "kta-path",
        {"C": 3.0, "dp": 0.05},
        path_value,
        _passes("150KiB"),
        "gramplane.pipeline.methods.kta_path.machines.FeatureGram",
        rel=1e-5,
        slack=1e-5,
    ),
    "hierarchical-kernels": Sides(
        "hierarchical-kernels",
        {"scale": None, "dag": "subsets(rbf(gamma=0.5)[0:4])", "C": 2.0, "tol": 1e-4, "loss": "hinge"},
        lambda model: told.subsets_of_features(model, X[:, :4], 0.5, SIGNS, "hinge"),
        {"params": {"grams": "recompute"}, **_passes("120KiB")},
        "gramplane.kernels.svm.smo.solve_decomposition",
        rel=1e-5,
        slack=1e-5,
    ),
    "npkl-base": Sides(
        "npkl",
        {"loss": "squared_hinge", "C": 0.3, "B": 20.0, "base": 12, "tol": 1e-6, "max_iter": 3000, "graph": "union"},
        lambda model: told.pairs_kernel(model, X, TRIPLES),
        {"gramplane.kernels.spectral.neighbors.MAX_DENSE_BASIS_ROWS": 10},
        "gramplane.kernels.spectral.neighbors.eigsh",
        extra={"constraints": TRIPLES},
        slack=1e-7,
    ),
    "npkl": Sides(
        "npkl",
        {"loss": "squared_hinge", "C": 0.3, "B": 20.0, "tol": 1e-4, "max_iter": 3000, "graph": "union"},
        lambda model: told.pairs_kernel(model, X, TRIPLES),
        FILTERED,
        CHEBYSHEV,
        extra={"constraints": TRIPLES},
        rel=1e-5,
        slack=1e-6,
    ),
    "colored-mvu": Sides(
        "colored-mvu",
        {"graph": "union", "n_neighbors": 4, "C": 0.5, "tol": 1e-4, "max_iter": 2000},
        lambda model: told.coloured(model, X, LABELS),
        {**FILTERED, "gramplane.kernels.spectral.embeddings.MAX_NEWTON_ROWS": 20},
        CHEBYSHEV,
        rel=1e-5,
        slack=1e-6,
    ),
    "semantic-ranker": Sides(
        "semantic-ranker",
        {"n_neighbors": 4, "tol": 1e-5, "max_iter": 3000, "base": 12},
        lambda model: told.image_ranking(model, X, [text.split() for text in TAGS]),
        {"gramplane.kernels.spectral.neighbors.MAX_DENSE_BASIS_ROWS": 10},
        "gramplane.kernels.spectral.neighbors.eigsh",
        rel=1e-5,
        slack=1e-6,
        extra={"tags": TAGS},
    ),
    "social-strength-factorised": Sides(
        "social-strength",
        {"kernels": ["rbf(gamma=0.5)[0:2]"], "normalize": "none", "pair_kernel": "tensor", "C": 0.002, "tol": 1e-6},
        gram_value(lambda model, K: told.strength(model, K, PAIRS, LINKS), ["rbf(gamma=0.5)[0:2]"]),
        {"gramplane.kernels.svm.logistic.MAX_INNER_STEPS": 1},
        "gramplane.kernels.svm.logistic._Newton._direct_solve",
        rel=1e-5,
        slack=1e-6,
        extra={"pairs": np.column_stack([PAIRS, LINKS]).tolist()},
    ),
    "social-strength": Sides(
        "social-strength",
        {"kernels": ["rbf(gamma=0.5)[0:2]", "rbf(gamma=0.2)[3:6]"], "normalize": "none", "pair_kernel": "tensor", "C": 0.1, "tol": 1e-6},
        gram_value(lambda model, K: told.strength(model, K, PAIRS, LINKS), ["rbf(gamma=0.5)[0:2]", "rbf(gamma=0.2)[3:6]"]),
        {"gramplane.pipeline.methods.social_strength.problem.MAX_DENSE_PAIRS": 10},
        "gramplane.pipeline.methods.social_strength.problem.PairGram",
        rel=1e-5,
        slack=1e-6,
        extra={"pairs": np.column_stack([PAIRS, LINKS]).tolist()},
    ),
}


def _place(name: str) -> tuple[Any, str]:
    """Return the module, or the class in one, that holds a name, and the name in it."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            holder = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:-1]:
            holder = getattr(holder, part)
        return holder, parts[-1]
    raise AssertionError(name)


@pytest.fixture(autouse=True)
def _quiet():
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def solved(sides: Sides, choice: dict[str, Any], folder, monkeypatch) -> tuple[Any, dict[str, Any], int]:
    """Return the model of one side, its summary, and how often the function of the fast side was called."""
    calls, memory, params = [], choice.get("driver_memory", "1GiB"), {**sides.params, **choice.get("params", {})}
    with monkeypatch.context() as patch:
        for name, value in choice.items():
            if "." in name:
                assert hasattr(*_place(name)), f"{name} is no longer a named size"
                patch.setattr(*_place(name), value)
        holder, name = _place(sides.ran)
        plain = getattr(holder, name)
        patch.setattr(holder, name, lambda *given, **options: (calls.append(1), plain(*given, **options))[1])
        run = run_method(sides.method, params, data=folder[0], run=folder[1], extra=sides.extra, driver_memory=memory)
    return load_model(folder[1]), run.summary, len(calls)


@pytest.mark.parametrize("name", SIDES)
def test_bounds_of_both_sides_hold_the_same_optimum(name, tmp_path, monkeypatch):
    sides = SIDES[name]
    rows, target, options = sides.data
    store = ingest((rows, target), tmp_path / "data", **options).url
    fast, quick, ran = solved(sides, sides.fast, (store, str(tmp_path / "fast")), monkeypatch)
    plain, slow, idle = solved(sides, sides.plain, (store, str(tmp_path / "plain")), monkeypatch)
    assert ran > idle, f"{sides.ran} was called {ran} times on the fast side, {idle} on the plain one"
    for model, summary in ((fast, quick), (plain, slow)):
        assert summary["stop"] not in ("max_iter", "no_progress"), summary["stop"]
        assert summary["gap"] is not None and summary["gap"] >= -1e-9 * abs(summary["objective"])
        if sides.value is not None:
            assert summary["objective"] == pytest.approx(sides.value(model), rel=sides.rel)
    size = max(abs(quick["objective"]), abs(slow["objective"]))
    assert quick["gap"] + slow["gap"] <= 1e-3 * size, f"too loose to tell: {quick['gap']}, {slow['gap']} of {size}"
    assert quick["objective"] - quick["gap"] <= slow["objective"] + sides.slack * size
    assert slow["objective"] - slow["gap"] <= quick["objective"] + sides.slack * size


# -- few rows, kernels of single columns -------------------------------------------------------------------------------------------

FEW, FEW_Y, FEW_TASK, FEW_KERNELS = few_rows(6, (6, 5, 4))
FEW_X, FEW_LABELS, TOGETHER = FEW[-1], np.where(np.median(FEW_Y) < FEW_Y, 1, -1), np.zeros(len(FEW_Y), int)


@pytest.mark.parametrize(
    ("q", "fit"),
    [
        (1.0, lambda: api.MKLRegressor(FEW_KERNELS, C=3.0, constraint="simplex").fit(FEW_X, FEW_Y)),
        (1.5, lambda: api.SharedSubspaceMKLRegressor(FEW_KERNELS, C=3.0, q=1.5).fit(FEW_X, FEW_Y, TOGETHER)),
        (1.5, lambda: api.MultiTaskMKLRegressor(FEW_KERNELS, C=3.0, q=1.5, p=6.0).fit(FEW_X, FEW_Y, TOGETHER)),
    ],
    ids=["mkl", "shared-subspace-mkl", "multitask-mkl"],
)
def test_bounds_on_few_rows_hold_the_optimum_of_a_general_solver(q, fit):
    model, best = fit(), tube_optimum(FEW, FEW_Y, TOGETHER, 3.0, 2.0, q)
    assert model.converged_ and 0 <= model.dual_gap_ <= 1e-3 * max(model.objective_, 1.0)
    assert model.lower_bound_ <= best <= model.objective_ * (1 + 1e-4)


@pytest.mark.parametrize(
    "fit",
    [
        lambda: api.SharedSubspaceMKLRegressor(FEW_KERNELS, C=30.0, q=1.0).fit(FEW_X, FEW_Y, FEW_TASK),
        lambda: api.LatentTaskMKLRegressor(FEW_KERNELS[:3], C=3.0).fit(FEW_X, FEW_Y, FEW_TASK),
        lambda: api.HierarchicalKernelRegressor(C=3.0).fit(FEW_X, FEW_Y),
        lambda: api.MultiTaskMKLClassifier(FEW_KERNELS, C=3.0, p=3.0).fit(FEW_X, FEW_LABELS, FEW_TASK),
        lambda: api.TriClassSVC(C=3.0, C_unlabelled=0.1, kernel="linear").fit(FEW_X[:20], FEW_LABELS[:20], X_unlabelled=FEW_X[20:]),
    ],
    ids=["shared-subspace-mkl", "latent-task-mkl", "hierarchical-kernels", "multitask-mkl", "tri-class-svm"],
)
def test_fits_of_few_rows_end_certified(fit):
    model = fit()
    assert model.converged_ and model.stop_reason_ != "bounds" and model.dual_gap_ >= 0
