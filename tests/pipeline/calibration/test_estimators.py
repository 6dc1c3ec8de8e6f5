"""Probabilities of estimators: out-of-fold oracles, exact ones, references to the data of the fit, copies, refusals."""

import gc
import pickle
import warnings
import weakref

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV, _SigmoidCalibration
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import scale

from gramplane import pipeline
from gramplane.pipeline import FGMClassifier, GroupLassoClassifier, KTASelectionPath, MKLClassifier, MultiTaskSelector, TriClassSVC
from gramplane.pipeline.core.calibration import draw_folds
from gramplane.pipeline.inputs.labels import Inputs
from gramplane.pipeline.inputs.tasks import with_tasks
from gramplane.pipeline.models.calibration import class_probabilities, fit_calibration
from gramplane.storage import DataError
from tests.support.searches import holding_out

KERNELS = ["rbf(gamma=0.3)", "linear[0:2]"]
MACHINES = {
    "FGMClassifier": {"B": 2, "max_rounds": 2, "fit_intercept": True, "scale": None},  # (factors are those of all rows, not of a fold)
    "GroupLassoClassifier": {"loss": "squared", "lam": 0.01, "algorithm": "fista", "tol": 1e-9, "scale": None},
    "MKLClassifier": {"kernels": KERNELS, "scale": None},
    "TriClassSVC": {"gamma": 0.2, "inner_tol": 1e-6, "scale": None},
    "KTASelectionPath": {"dp": 0.1},
    "TwoLayerMKLClassifier": {"kernels": KERNELS, "max_iter": 3, "scale": None},
    "RuleEnsembleClassifier": {"n_thresholds": 2, "max_rounds": 3},
    "HierarchicalKernelClassifier": {"dag": "subsets(gaussian[0:3])", "tol": 1e-2, "scale": None},
    "LatentTaskMKLClassifier": {"kernels": KERNELS, "tol": 1e-2, "scale": None},
    "MultiTaskMKLClassifier": {"kernels": KERNELS, "scale": None},
    "SharedSubspaceMKLClassifier": {"kernels": KERNELS, "scale": None},
    "MultiTaskSelector": {"loss": "hinge", "algorithm": "fista", "lam": 1e-2, "max_iter": 100, "scale": None},
}
"""Every classifier with a loss that has no probabilities of its own."""
OF_TASKS = ("LatentTaskMKLClassifier", "MultiTaskMKLClassifier", "SharedSubspaceMKLClassifier", "MultiTaskSelector")
OF_TWO = ("MultiTaskSelector",)


def draw(seed=0, n=90, n_classes=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    f = X[:, 0] + 0.5 * X[:, 1] + 0.4 * rng.normal(size=n)
    edges = [0.0] if n_classes == 2 else [-0.5, 0.5]
    labels = ["no", "yes"] if n_classes == 2 else ["no", "or", "yes"]
    return X, np.array(labels)[np.digitize(f, edges)], np.arange(n) % 3


def machine(name, **more):
    return getattr(pipeline, name)(**{**MACHINES[name], **more})


def quiet(fit, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(*args, **options)


@pytest.mark.parametrize(
    ("name", "n_classes"),
    [*((name, 2) for name in MACHINES), *(pytest.param(name, 3, marks=pytest.mark.slow) for name in MACHINES if name not in OF_TWO)],
)
def test_calibrated_on_what_fits_without_a_fold_decide_on_it(name, n_classes):
    """The same by hand: a fit without every fold, scikit-learn's sigmoid or steps on its decision values."""
    X, y, task = draw(n_classes=n_classes)
    tasks = {"task": task} if name in OF_TASKS else {}
    estimator = quiet(machine(name).fit, X, y, **tasks)
    before = dict(vars(estimator))
    p = quiet(estimator.predict_proba, X, **tasks)
    assert vars(estimator) == before
    classes, codes = np.unique(y, return_inverse=True)
    inputs = Inputs(None, codes, tuple(classes))
    folds = draw_folds(with_tasks(inputs, task) if tasks else inputs, 0)
    assert folds.count == 5 and folds.rows.all() and not folds.message
    values = np.zeros((1 if n_classes == 2 else 3, len(y)))
    loose = estimator._config().for_folds()
    wider = {key: getattr(loose, key) for key in loose.fold_tols}
    for mask in folds.masks:
        part = holding_out(machine(name, **wider), mask)
        quiet(part.fit, X, y, **tasks)
        of_part = {"task": task[mask]} if tasks else {}
        values[:, mask] = np.atleast_2d(part.decision_function(X[mask], **of_part).T)
    f = np.atleast_2d(estimator.decision_function(X, **tasks).T)
    for kind in ("sigmoid", "isotonic"):
        raw = np.stack([peer(kind, values[m], codes == (1 if n_classes == 2 else m)).predict(f[m]) for m in range(len(f))])
        expected = np.column_stack([1 - raw[0], raw[0]]) if n_classes == 2 else (raw / raw.sum(axis=0)).T
        at_fit = p if kind == "sigmoid" else quiet(machine(name, probability=kind).fit, X, y, **tasks).predict_proba(X, **tasks)
        # Steps of isotonic regression may turn on the last digit of single-precision Gram matrices.
        share = np.mean(np.abs(at_fit - expected).max(axis=1) > 1e-5)
        assert share <= (0.0 if kind == "sigmoid" else 0.1), (kind, np.abs(at_fit - expected).max())
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.exp(estimator.predict_log_proba(X, **tasks)), p, atol=1e-12)


def peer(kind, f, positive):
    chosen = _SigmoidCalibration() if kind == "sigmoid" else IsotonicRegression(out_of_bounds="clip")
    return chosen.fit(f, positive.astype(float))


@pytest.mark.parametrize("name", MACHINES)
def test_at_fit_and_when_first_asked_for_are_the_same_bits(name):
    X, y, task = draw(1)
    tasks = {"task": task} if name in OF_TASKS else {}
    at_fit = quiet(machine(name, probability="sigmoid").fit, X, y, **tasks)
    assert at_fit.model_.calibration.kind == "sigmoid" and at_fit.model_.calibration.folds == 5
    late = quiet(machine(name).fit, X, y, **tasks)
    assert late.model_.calibration is None
    np.testing.assert_array_equal(late.predict_proba(X, **tasks), at_fit.predict_proba(X, **tasks))
    np.testing.assert_array_equal(late.predict(X, **tasks), at_fit.predict(X, **tasks))


@pytest.mark.parametrize("kind", ["sigmoid", "isotonic"])
def test_a_fitted_machine_is_calibrated_as_scikit_learn_does(kind):
    X, y, _ = draw(2, n=240, n_classes=3)
    fitted = machine("MKLClassifier").fit(X[:80], y[:80])
    cal, new = slice(80, 160), slice(160, None)
    theirs = CalibratedClassifierCV(FrozenEstimator(fitted), method=kind, ensemble=False).fit(X[cal], y[cal])
    codes = np.searchsorted(fitted.classes_, y[cal])
    ours = fit_calibration(kind, 0, fitted.decision_function(X[cal]).T, codes, np.ones(80))
    found = class_probabilities(ours, fitted.decision_function(X[new]))
    np.testing.assert_allclose(found, theirs.predict_proba(X[new]), atol=1e-6)


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_beside_calibrated_classifier_cv(load):
    """As good as scikit-learn's calibration of the same machine on folds, over three splits."""
    X, y = load(return_X_y=True)
    X, own, theirs = scale(X), [], []
    for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(X, y):
        base = MKLClassifier(["rbf(gamma=0.03)", "linear"], tol=1e-2, scale=None)
        peers = CalibratedClassifierCV(clone(base), ensemble=False, cv=5).fit(X[train], y[train])
        for scores, probabilities in (
            (own, base.fit(X[train], y[train]).predict_proba(X[test])),
            (theirs, peers.predict_proba(X[test])),
        ):
            hot = np.eye(len(np.unique(y)))[y[test]]
            scores.append((np.mean(np.sum((probabilities - hot) ** 2, axis=1)), log_loss(y[test], probabilities)))
    own, theirs = np.mean(own, axis=0), np.mean(theirs, axis=0)
    assert own[0] <= theirs[0] + 0.01 and own[1] <= theirs[1] + 0.02, (own, theirs)
    assert own[0] < 0.1


# -- exact -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "estimator",
    [
        FGMClassifier(B=2, max_rounds=2, loss="logistic"),
        GroupLassoClassifier(lam=0.01, scale=None),
        GroupLassoClassifier(lam=0.01, algorithm="fista", scale=None),
    ],
    ids=["fgm", "group lasso", "its optimum"],
)
def test_the_logistic_loss_is_exact(estimator, n_classes):
    X, y, _ = draw(3, n_classes=n_classes)
    f = estimator.fit(X, y).decision_function(X)
    p = estimator.predict_proba(X)
    if n_classes == 2:
        np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-f)), rtol=1e-12)
    else:
        raw = 1 / (1 + np.exp(-f))
        np.testing.assert_allclose(p, raw / raw.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_array_equal(estimator.classes_[p.argmax(axis=1)], estimator.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(estimator)).predict_proba(X), p)


def test_a_stream_of_rows_is_exact_with_the_logistic_loss_and_says_what_to_do_with_another():
    X, y, task = draw(4)
    stream = GroupLassoClassifier(lam=0.01, scale=None).partial_fit(X[:40], y[:40], classes=["no", "yes"]).partial_fit(X[40:], y[40:])
    np.testing.assert_allclose(stream.predict_proba(X)[:, 1], 1 / (1 + np.exp(-stream.decision_function(X))), rtol=1e-12)
    with pytest.raises(ValueError, match=r"after partial_fit.*probability='sigmoid'.*logistic loss"):
        GroupLassoClassifier(loss="hinge").partial_fit(X, y, classes=["no", "yes"]).predict_proba(X)
    tasks = MultiTaskSelector(loss="logistic", lam=1e-3, scale=None).partial_fit(X, y, task, tasks=[0, 1, 2], classes=["no", "yes"])
    np.testing.assert_allclose(tasks.predict_proba(X, task)[:, 1], 1 / (1 + np.exp(-tasks.decision_function(X, task))), rtol=1e-12)


# -- references, copies, refusals --------------------------------------------------------------------------------------------------


def test_data_of_the_fit_are_referred_to_until_they_are_used():
    X, y, _ = draw(5)
    fitted, alive, rows = machine("MKLClassifier").fit(X, y), weakref.ref(X), X[:5].copy()
    assert np.shares_memory(fitted._late._make.args[0].inputs.data.X, X)
    del X
    gc.collect()
    assert alive() is not None
    fitted.predict_proba(rows)
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    "form", [np.asarray, np.asfortranarray, lambda X: X[:, ::-1], sp.csr_array], ids=["rows", "columns", "view", "sparse"]
)
def test_changed_data_are_refused_by_name(form):
    X, y, _ = draw(6)
    X, weight = form(X.copy()), np.ones(len(y))
    fitted = machine("FGMClassifier").fit(X, y, weight)
    (X.data if sp.issparse(X) else X)[3] *= 2.0
    with pytest.raises(ValueError, match=r"^X was changed in place after fit.*probability='sigmoid'"):
        fitted.predict_proba(X)
    (X.data if sp.issparse(X) else X)[3] *= 0.5
    weight[2] = 5.0
    with pytest.raises(ValueError, match=r"^sample_weight was changed"):
        fitted.predict_proba(X)
    weight[2] = 1.0
    y[:] = "no"  # the fit has its own codes of the labels
    p = fitted.predict_proba(X)
    fresh = draw(6)
    np.testing.assert_array_equal(p, machine("FGMClassifier").fit(X, fresh[1], weight).predict_proba(X))


def test_copies_have_a_calibration_but_no_data():
    X, y, _ = draw(7, n=4000)
    fitted = machine("FGMClassifier").fit(X, y)
    copy = pickle.loads(pickle.dumps(fitted))
    with pytest.raises(ValueError, match=r"in a copied or loaded model.*with probability='sigmoid'"):
        copy.predict_proba(X)
    p = fitted.predict_proba(X)
    text = pickle.dumps(fitted)
    assert len(text) < X.nbytes / 4
    np.testing.assert_array_equal(pickle.loads(text).predict_proba(X), p)


def test_few_rows_of_a_class_make_fewer_folds_and_a_single_one_is_refused():
    X, y, _ = draw(8)
    y = np.where(np.arange(len(y)) < 3, "rare", "often")
    fitted = machine("MKLClassifier").fit(X, y)
    with pytest.warns(UserWarning, match=r"class 'rare' has 3 rows: probabilities are calibrated on 3 folds"):
        assert fitted.predict_proba(X).shape == (90, 2)
    weight = np.where(np.isin(np.arange(len(y)), (1, 2)), 0.0, 1.0)
    with pytest.raises(DataError, match=r"class 'rare' has one row.*needs at least two rows of every class.*probability=False"):
        machine("MKLClassifier").fit(X, y, weight).predict_proba(X)
    with pytest.raises(DataError, match="class 'rare' has one row"):
        machine("MKLClassifier", probability="sigmoid").fit(X, y, weight)


def test_without_probabilities_there_are_none():
    X, y, _ = draw(9)
    fitted = machine("MKLClassifier", probability=False).fit(X, y)
    assert not hasattr(fitted, "predict_proba") and not hasattr(fitted, "predict_log_proba") and fitted._late is None
    assert not hasattr(MultiTaskSelector(), "predict_proba")
    assert not hasattr(pipeline.MKLRegressor(), "predict_proba") and "probability" not in pipeline.MKLRegressor().get_params()
    with pytest.raises(ValueError, match="probability='platt'"):
        machine("MKLClassifier", probability="platt").fit(X, y)


def test_the_cost_is_told(caplog):
    X, y, _ = draw(10)
    fitted = machine("MKLClassifier").fit(X, y)
    with caplog.at_level("INFO", logger="gramplane"):
        fitted.predict_proba(X)
        fitted.predict_proba(X)
    assert [record.getMessage() for record in caplog.records] == ["probabilities are calibrated: 5 folds, about 5 fits"]


def test_events_of_a_calibration_are_not_those_of_the_fit():
    X, y, _ = draw(11)
    seen = []
    fitted = machine("MKLClassifier", probability="sigmoid", callbacks=[seen.append]).fit(X, y)
    assert sum(event["event"] == "iteration" for event in seen) == fitted.n_iter_
    assert [event["cost"] for event in seen if event["event"] == "calibration"] == ["5 folds, about 5 fits"]


def test_machines_along_a_path_are_calibrated_where_they_stand():
    X, y, _ = draw(12, n_classes=3)
    path = KTASelectionPath(dp=0.1).fit(X, y)
    p = path.p_for(3)
    found = path.svm_at(p).predict_proba(X)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_array_equal(path.svm_at(path.p_).predict_proba(X), path.predict_proba(X))
    np.testing.assert_array_equal(found, KTASelectionPath(dp=0.1, p=p).fit(X, y).predict_proba(X))
    with pytest.raises(ValueError, match="probability=False"):
        KTASelectionPath(dp=0.1, probability=False).fit(X, y).svm_at(p).predict_proba(X)


def test_tri_class_machines_are_calibrated_on_labelled_rows():
    X, y, _ = draw(13)
    noise = np.where(np.arange(len(y)) % 4 == 0, "noise", y)
    fitted = TriClassSVC(irrelevant_label="noise", validation=0).fit(X[:60], noise[:60], X[60:])
    p = fitted.predict_proba(X)
    assert p.shape == (90, 2) and fitted.classes_.tolist() == ["no", "yes"]
    known = noise != "noise"
    assert brier_score_loss(y[known] == "yes", p[known, 1]) < 0.2


def test_a_task_that_would_be_left_without_rows_keeps_them():
    codes = np.array([0, 1] * 10)
    inputs = with_tasks(Inputs(None, codes, ("a", "b")), np.array([9, 9, *([3] * 18)]))
    for seed in range(20):
        folds = draw_folds(inputs, seed)
        for mask in folds.masks:
            assert set(inputs.codes[~mask]) == {0, 1}
        assert folds.rows[2:].all()


def test_scores_that_need_probabilities_choose_a_parameter():
    X, y, _ = draw(14)
    search = GridSearchCV(machine("FGMClassifier"), {"C": [0.1, 1.0]}, scoring="neg_log_loss", cv=3).fit(X, y)
    assert search.best_score_ > -0.7 and search.predict_proba(X).shape == (90, 2)
