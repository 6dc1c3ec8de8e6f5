"""Wrong kernels, matrices and parameters: one message that names them, before any machine is solved."""

import warnings

import numpy as np
import pytest
from sklearn.model_selection import KFold, cross_val_score

from gramplane.cluster import MemoryBoundExceeded
from gramplane.kernels.jit import one_thread
from gramplane.pipeline import MKLClassifier, MKLRegressor, load_model, predict_store, run_method
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.grams.settings import GramSettings, check_machines, machines_items
from gramplane.pipeline.runs.gram_stores import build_grams
from gramplane.storage import DataError, StorageError
from gramplane.storage.ingest import ingest, ingest_grams
from tests.support.oracles import mkl as oracle

KERNELS = ["rbf(gamma=0.5)", "linear"]


def rows(n=60, d=3, seed=0):
    X = np.random.default_rng(seed).random((n, d))
    return X, (X[:, 0] > np.median(X[:, 0])).astype(int)


def refused(model, X, y, message):
    """The fit ends with this message, and no machine was solved before it."""
    seen = []
    model.set_params(callbacks=[seen.append])
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not [event for event in seen if event["event"] == "iteration"]


def not_finite(X, Z):
    """A callable that overflows somewhere."""
    K = np.asarray(X) @ np.asarray(Z).T
    K[0, 0] = np.nan
    return K


def lopsided(X, Z):
    """A callable that is not symmetric."""
    return np.asarray(X)[:, :1] + 2 * np.asarray(Z)[:, 0]


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        ([not_finite, "linear"], r"not_finite.* gives nan for row 0"),
        ([lopsided, "linear"], r"lopsided.* is not symmetric"),
        (["chi2"], "chi2.*values >= 0"),
        (["spectrum(k=2)", "linear"], r"kernel spectrum\(k=2\) reads strings; the data set holds numbers"),
        (["rbf(gama=1)"], "'rbf' has no parameter 'gama'"),
        (["linear[3]"], r"column 3 is outside the data"),
    ],
)
def test_kernels_that_do_not_suit_the_data(kernels, message):
    X, y = rows()
    refused(MKLClassifier(kernels, scale=None), X - 0.5, y, message)


def test_kernels_of_numbers_on_strings():
    refused(
        MKLClassifier(["spectrum(k=1)", "linear"], scale=None),
        ["ab", "ba", "cd", "dc"],
        [0, 0, 1, 1],
        "kernel linear reads numbers; the data set holds strings",
    )


def test_all_kernels_zero_and_some():
    X, y = rows()
    X[:, 1:] = 0.0
    refused(MKLClassifier(["linear[1]", "linear[1:3]"], scale=None), X, y, r"every kernel \(the first is linear\[1\] trace\) is zero")
    with pytest.warns(UserWarning, match=r"kernel linear\[1\] trace, linear\[2\] trace is zero .* they add nothing"):
        found = MKLClassifier(["linear[1]", "linear[0]", "linear[2]"], scale=None).fit(X, y)
    np.testing.assert_array_equal(found.support_, [1])
    with pytest.warns(UserWarning, match=r"poly\(degree=2\)\[1\] multiplicative is zero \(or constant\)"):
        MKLClassifier(["poly(degree=2)[1]", "linear[0]"], normalize="multiplicative", scale=None).fit(X, y)


def test_identical_matrices_work_and_are_told():
    problem = oracle.random_problem(0)
    grams = np.concatenate([problem.grams, problem.grams[1:2]])
    with pytest.warns(UserWarning, match="precomputed 1 and precomputed 6"):
        found = MKLClassifier("precomputed").fit(grams, problem.y)
    assert found.kernel_weights_[1] == pytest.approx(found.kernel_weights_[6], abs=1e-6)


def test_matrices_that_are_multiples_of_each_other_are_the_same_once_normalised():
    problem = oracle.random_problem(0)
    with pytest.warns(UserWarning, match="kernels that are the same: precomputed 0 and precomputed 2 "):
        MKLClassifier("precomputed", grams="recompute").fit(np.stack([*problem.grams[:2], 4.0 * problem.grams[0]]), problem.y)


@pytest.mark.parametrize("kind", ["memory", "recompute"])
def test_more_kernels_than_memory_allows(kind):
    def check(k, memory):
        settings = GramSettings(kind, 128)
        ctx = RunContext(None, data=None, driver_memory=memory)
        check_machines(settings, machines_items(settings, 3000, k, 1, memory), 3000, k, ctx, "mkl")

    told = {
        "memory": "packed triangles .*another policy",
        "recompute": "of every kernel .*fewer kernels or rows",
    }
    with pytest.raises(MemoryBoundExceeded, match=rf"mkl: this process would hold .*{told[kind]}.*--driver-memory"):
        check(200_000, 2 << 30)
    check(200, 4 << 30)


def test_one_class_in_a_fold_or_too_few_of_one(tmp_path):
    X, y = rows()
    order = np.argsort(y)
    with pytest.raises(ValueError, match=r"one class only"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cross_val_score(MKLClassifier(KERNELS, scale=None), X[order], y[order], cv=KFold(2), error_score="raise")
    labels = np.where(np.arange(60) == 7, "rare", "usual")
    ingest((X, labels), tmp_path / "data")
    with pytest.raises(DataError, match="class 'rare' has 1 rows, too few"):
        run_method("mkl", {"kernels": KERNELS}, data=str(tmp_path / "data"), run=str(tmp_path / "run"), extra={"test_share": 0.3})
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0.0}, "C=0.0"),
        ({"C": np.inf}, "C=inf"),
        ({"epsilon": -1.0}, "epsilon=-1.0"),
        ({"v": 2.0}, "v=2.0"),
        ({"p": 0.9, "constraint": "lp"}, "p=0.9"),
        ({"normalize": "trace n"}, "normalize='trace n'"),
        ({"solver": "levle"}, "solver='levle'"),
        ({"threshold": 1.5}, "threshold=1.5"),
    ],
)
def test_parameters_of_regressions(options, message):
    X, _ = rows()
    refused(MKLRegressor(KERNELS, **options, scale=None), X, X[:, 0], message)


# --- Gram stores ------------------------------------------------------------------------------------------------------------------


def test_a_stored_matrix_that_is_no_kernel(tmp_path):
    problem = oracle.random_problem(0)
    grams = problem.grams.copy()
    grams[2] -= 2.0 * np.eye(14)
    store = ingest_grams(grams, tmp_path / "grams")
    refused(
        MKLClassifier("precomputed"), store, problem.y, r"kernel 2 of .*grams is not positive semi-definite: its least eigenvalue is -2"
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two block stores, and a Gram store of the first."""
    folder = tmp_path_factory.mktemp("mkl-stores")
    with one_thread():
        ingest(rows(), folder / "data")
        ingest(rows(seed=1), folder / "other")
        ingest(rows(n=50), folder / "shorter")
        build_grams(str(folder / "data"), KERNELS, str(folder / "grams"))
    return folder


def start(place, run, params, data="data", **options):
    return run_method("mkl", params, data=str(place / data), run=str(run), **options)


def test_a_run_on_the_kernels_of_a_gram_store_is_that_of_the_kernels(place, tmp_path):
    start(place, tmp_path / "named", {"kernels": KERNELS})
    start(place, tmp_path / "stored", {"kernels": "precomputed", "gram_store": str(place / "grams")})
    named, stored = load_model(tmp_path / "named"), load_model(tmp_path / "stored")
    assert named.dual_coef_.tobytes() == stored.dual_coef_.tobytes() and stored.kernels == KERNELS
    X, _ = rows(seed=2)
    assert named.decision_function(X).tobytes() == stored.decision_function(X).tobytes()


@pytest.mark.parametrize(
    ("data", "message"), [("other", "kernels of other data than .*other"), ("shorter", "matrices of 60 rows; .*shorter has 50 rows")]
)
def test_a_gram_store_of_other_rows(place, tmp_path, data, message):
    with pytest.raises(DataError, match=message):
        start(place, tmp_path / "run", {"kernels": "precomputed", "gram_store": str(place / "grams")}, data)
    with pytest.raises(ValueError, match=r"needs gram_store, the Gram store of these rows"):
        start(place, tmp_path / "run", {"kernels": "precomputed"})
    assert not (tmp_path / "run" / "config.json").exists()


def test_matrices_computed_elsewhere_carry_a_run(place, tmp_path):
    X, y = rows()
    distance = np.square(X[:, None] - X[None]).sum(axis=2)
    grams = np.stack([np.exp(-0.5 * distance), X @ X.T])
    ingest_grams(grams, tmp_path / "given")
    for policy in ("auto", "store"):
        start(place, tmp_path / policy, {"kernels": "precomputed", "gram_store": str(tmp_path / "given"), "grams": policy})
    model, direct = load_model(tmp_path / "auto"), MKLClassifier("precomputed").fit(grams, y)
    np.testing.assert_allclose(model.kernel_weights_, direct.kernel_weights_, atol=1e-6)
    assert model.dual_coef_.tobytes() == load_model(tmp_path / "store").dual_coef_.tobytes()
    np.testing.assert_allclose(model.decision_function(grams), direct.decision_function(grams), atol=1e-6)
    with pytest.raises((ValueError, StorageError), match="trained on precomputed kernels; call predict with kernels"):
        predict_store(str(tmp_path / "auto"), str(place / "data"), str(tmp_path / "out.csv"))
