"""Feature selection over many tasks: optimum, rounds, offsets, second fits; the same bits from arrays, stores and pieces; bad input."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning

from gramplane.cluster import MemoryBoundExceeded, open_executor
from gramplane.pipeline import GroupLassoRegressor, MultiTaskSelector, load_model, predict_store, run_method, score_store, tune
from gramplane.pipeline.core.engine import iterate
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.inputs.labels import Inputs
from gramplane.pipeline.inputs.tasks import with_tasks
from gramplane.pipeline.methods.multitask_selector.config import SelectorConfig
from gramplane.pipeline.methods.multitask_selector.method import Selector
from gramplane.storage import DataError, MemoryBlocks
from gramplane.storage.ingest import ingest
from tests.support.oracles.task_selection import batch_optimum, dense_rounds

NAMES = np.array(["ash", "beech", "cedar"])


def problem(seed=0, n=90, d=8, signs=False, even=False):
    """Three tasks of different sizes that share two of their features; rows of tasks are mixed."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    codes = np.arange(n) % 3 if even else np.minimum(rng.integers(0, 6, n) // 2, 2) * (rng.random(n) < 0.8)
    codes = codes.astype(int)
    W = np.zeros((3, d))
    W[:, :2], W[1, 4] = rng.normal(size=(3, 2)) + 1, 1.0
    y = (X * W[codes]).sum(axis=1) + 0.3 * rng.normal(size=n) + 2.0 * codes
    return X, (np.where(y > np.median(y), "up", "down") if signs else y), NAMES[codes]


def selector(**more):
    return MultiTaskSelector(**{"lam": 0.1, "gamma": 20.0, "epochs": 2, "scale": None, **more})


def same(a, b):
    np.testing.assert_array_equal(a.coef_, b.coef_)
    np.testing.assert_array_equal(a.intercept_, b.intercept_)


# -- the batch optimum -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["imtfs", "amtfs", "mtfts"])
def test_batch_is_the_optimum_of_a_general_solver(name, bias):
    X, y, task = problem(1, even=True)
    lam, r = 0.3, 0.2
    fitted = selector(penalty=name, lam=lam, r=r, algorithm="fista", fit_intercept=bias, tol=1e-9).fit(X, y, task)
    row, entry = {"imtfs": (0.0, lam), "amtfs": (lam, 0.0), "mtfts": (lam, lam * r)}[name]
    best = batch_optimum(X, y, np.arange(90) % 3, 3, row, entry, bias)
    assert fitted.objective_ <= best + 1e-9
    assert fitted.objective_ - fitted.dual_gap_ <= best + 1e-9
    assert 0 <= fitted.dual_gap_ <= 1e-9 * fitted.objective_
    values = fitted.predict(X, task)
    told = sum(0.5 * np.square(y - values)[task == t].mean() for t in NAMES)
    assert fitted.objective_ == pytest.approx(told + row * np.linalg.norm(fitted.coef_, axis=0).sum() + entry * np.abs(fitted.coef_).sum())


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_batch_of_classes_closes_its_gap_and_rounds_come_close(loss):
    X, y, task = problem(2, n=150, signs=True, even=True)
    best = selector(lam=0.05, loss=loss, algorithm="fista", fit_intercept=True, tol=1e-6).fit(X, y, task)
    assert best.converged_ and best.dual_gap_ <= 1e-6 * best.objective_
    online = selector(lam=0.05, gamma=1.0, loss=loss, epochs=400, fit_intercept=True).fit(X, y, task)
    assert best.objective_ - best.dual_gap_ <= online.objective_ <= 1.05 * best.objective_
    assert np.isnan(online.dual_gap_) and not online.converged_ and online.n_iter_ == 400 * 50
    assert online.score(X, y, task) > 0.8


@pytest.mark.parametrize("penalty", ["imtfs", "amtfs", "mtfts"])
def test_a_hinge_closes_its_gap_in_few_steps_at_any_weight_of_the_penalty(penalty):
    """A task whose rows are all of one class has the intercept that sets them right, and no weights."""
    rng = np.random.default_rng(0)
    task, X = np.arange(129) % 3, rng.normal(size=(129, 40))
    y = np.where((X[:, 0] + 0.5 * rng.normal(size=129) > 0) | (task == 2), 1, -1)
    auto = MultiTaskSelector(loss="hinge", algorithm="fista", penalty=penalty).fit(X, y, task).lam_
    for lam in (0.1 * auto, auto, 10 * auto):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "nothing is selected")
            machine = MultiTaskSelector(loss="hinge", algorithm="fista", penalty=penalty, lam=lam, scale="standard", tol=1e-6).fit(
                X, y, task
            )
        assert machine.converged_ and machine.dual_gap_ <= 1e-6 * machine.objective_
        assert machine.n_iter_ <= 150 and not machine.coef_[2].any() and machine.intercept_[2] == 1.0


def test_largest_useful_lam():
    X, y, task = problem(3, even=True)
    pull = np.stack([X[task == t].T @ (y[task == t] - y[task == t].mean()) / 30 for t in NAMES], axis=1)
    largest = np.linalg.norm(pull, axis=1).max()
    with pytest.warns(UserWarning, match="selects no feature"):
        assert not selector(penalty="amtfs", lam=largest * 1.000001, algorithm="fista").fit(X, y, task).coef_.any()
    assert selector(penalty="amtfs", lam=0.999 * largest, algorithm="fista", tol=1e-9).fit(X, y, task).coef_.any()


def test_an_unfinished_batch_warns():
    X, y, task = problem(1, signs=True)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 ended the fit before tol"):
        assert not selector(lam=0.01, loss="logistic", algorithm="fista", max_iter=1).fit(X, y, task).converged_


# -- rounds ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "csr", "float32"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_any_pieces_give_the_bits_of_a_fit(form, loss):
    X, y, task = problem(4, signs=loss != "squared")
    X = {"dense": X, "csr": sp.csr_array(X), "float32": X.astype(np.float32)}[form]
    place = np.array([np.sum(task[:i] == task[i]) for i in range(90)])
    order = np.lexsort((task, place))
    whole = selector(loss=loss, epochs=1, shuffle=False, fit_intercept=True).fit(X, y, task)
    for cuts in ([0, 90], [0, 1, 2, 3, 50, 51, 90], range(91)):
        pieces = clone(whole)
        for lo, hi in itertools.pairwise(cuts):
            part = order[lo:hi]
            pieces.partial_fit(X[part], y[part], task[part], tasks=NAMES, classes=["down", "up"])
        if cuts != range(91):
            assert pieces.tasks_.tolist() == NAMES.tolist()
        # The last round of a stream stays open until its tasks have come, or one comes again: one row of every task closes it.
        for model in (pieces, clone(whole).partial_fit(X[order], y[order], task[order], tasks=NAMES, classes=["down", "up"])):
            model.partial_fit(X[:1], y[:1], task[order[-1:]])
        same(pieces, model)
    assert whole.n_iter_ == pieces.n_iter_


def test_streams_go_on_after_a_fit_and_after_pickling():
    X, y, task = problem(5, even=True)
    one = selector(epochs=1, shuffle=False, fit_intercept=True).fit(X[:60], y[:60], task[:60]).partial_fit(X[60:], y[60:], task[60:])
    two = selector(epochs=1, shuffle=False, fit_intercept=True).partial_fit(X, y, task)
    same(one, two)
    other = selector(fit_intercept=True).partial_fit(X[:31], y[:31], task[:31])
    same(pickle.loads(pickle.dumps(other)).partial_fit(X[31:], y[31:], task[31:]), two)
    assert two.n_iter_ == 30 and np.isnan(two.objective_)


def test_one_task_is_the_lasso_of_a_stream():
    X, y, _ = problem(6)
    many = MultiTaskSelector("amtfs", lam=0.2, gamma=10.0, shuffle=False, fit_intercept=True).fit(X, y)
    one = GroupLassoRegressor("l1", lam=0.2, gamma=10.0, shuffle=False).fit(X, y)
    np.testing.assert_allclose(many.coef_[0], np.ravel(one.coef_), rtol=1e-9)
    np.testing.assert_allclose(many.intercept_, one.intercept_, rtol=1e-9)


def test_orders_are_drawn_from_the_seed_and_epochs_differ():
    X, y, task = problem(7)
    one = selector(random_state=1).fit(X, y, task)
    same(one, selector(random_state=1).fit(X, y, task))
    assert (one.coef_ != selector(random_state=2).fit(X, y, task).coef_).any()
    order = np.random.default_rng(0).permutation(90)
    plain = selector(shuffle=False)
    assert (plain.fit(X, y, task).coef_ != clone(plain).fit(X[order], y[order], task[order]).coef_).any()
    assert one.history_["epoch"].tolist() == [1, 2] and one.history_["rounds"].tolist() == [one.n_iter_ // 2, one.n_iter_]


def test_long_epochs_are_cut_into_steps_of_the_same_bits(monkeypatch):
    X, y, task = problem(8)
    whole = selector(fit_intercept=True).fit(X, y, task)
    monkeypatch.setattr("gramplane.pipeline.methods.multitask_selector.rows.STEP_ENTRIES", 60)
    parts = selector(fit_intercept=True).fit(X, y, task)
    assert len(parts.history_["loss"]) > 8
    same(whole, parts)
    assert np.isnan(parts.history_["objective"][0]) and parts.history_["objective"][-1] == whole.history_["objective"][-1]


def test_a_step_passes_no_fewer_entries_than_there_are_weights(monkeypatch):
    """What a step costs beside its rows is one pass over the weights: wide problems make fewer, longer steps."""
    X, y, task = problem(8)
    inputs = with_tasks(Inputs(MemoryBlocks(X), y, None), task)
    weights = 3 * X.shape[1]
    for entries, limit in ((1, weights), (60, 60), (10**9, 10**9)):
        monkeypatch.setattr("gramplane.pipeline.methods.multitask_selector.rows.STEP_ENTRIES", entries)
        with open_executor(None) as executor:
            plan = (
                Selector()
                .problem(
                    SelectorConfig(lam=0.1, algorithm="da", epochs=200, penalty="amtfs"), inputs, RunContext(executor, data=inputs.data)
                )
                .schedule
            )
        assert plan == ((10, 1) if limit > X.size else (1, -(-np.count_nonzero(X) // limit)))


def test_rows_of_weight_zero_are_not_there_and_weights_are_factors():
    X, y, task = problem(9, signs=True)
    weight = np.where(np.arange(90) % 4 == 0, 0.0, 1.0)
    for algorithm in ("da", "fista"):
        machine = selector(loss="logistic", algorithm=algorithm, shuffle=False, epochs=1, tol=1e-10)
        without = clone(machine).fit(X[weight > 0], y[weight > 0], task[weight > 0])
        np.testing.assert_allclose(clone(machine).fit(X, y, task, weight).coef_, without.coef_, atol=1e-9)
        by_class = clone(machine).set_params(class_weight={"up": 3.0}).fit(X, y, task)
        by_row = clone(machine).fit(X, y, task, np.where(y == "up", 3.0, 1.0))
        same(by_class, by_row)
    pieces = selector(loss="logistic", class_weight={"up": 3.0}).partial_fit(X, y, task)
    same(pieces, selector(loss="logistic").partial_fit(X, y, task, np.where(y == "up", 3.0, 1.0)))


def test_regret_is_what_was_paid_less_what_the_last_model_pays(monkeypatch):
    """Against losses that are summed anew row by row."""
    X, y, task = problem(8, signs=True)
    codes, signs = np.searchsorted(NAMES, task), np.where(y == "up", 1.0, -1.0)
    for entries in (1 << 17, 60):
        monkeypatch.setattr("gramplane.pipeline.methods.multitask_selector.rows.STEP_ENTRIES", entries)
        config = SelectorConfig(lam=0.1, gamma=20.0, epochs=2, loss="logistic", penalty="amtfs", algorithm="da", fit_intercept=False)
        inputs = with_tasks(Inputs(MemoryBlocks(X), (signs > 0).astype(int), ("down", "up")), task)
        with open_executor(None) as executor:
            ctx = RunContext(executor, data=inputs.data)
            rounds = Selector().problem(config, inputs, ctx)
            state = iterate(Selector(), rounds, ctx).state
        order = np.concatenate([np.append(rounds.epoch_order(epoch), -1) for epoch in range(2)])
        t, W, _, told, *_ = dense_rounds(X, signs, codes, order, 3, 0.1, 0.0, 20.0, "logistic")
        found, last = rounds.regret_curve(state), np.logaddexp(0.0, -signs * (X * W[:, codes].T).sum(axis=1))
        assert (found[-1]["rows"], found[-1]["features"]) == (180, (W != 0).any(axis=1).sum())
        assert found[-1]["mean_loss"] == pytest.approx(told.mean())
        penalties = state.along[:, 2] @ (state.along[:, 4] - state.along[-1, 4])
        assert state.along[:, 2].sum() == t
        assert found[-1]["regret"] == pytest.approx((told.sum() - 2 * last.sum() + penalties) / 180)


# -- offsets and second fits -------------------------------------------------------------------------------------------------------


def test_offsets_are_subtracted_and_given_back():
    X, y, task = problem(10)
    mean = selector(task_offset="mean").fit(X, y, task)
    np.testing.assert_allclose(mean.intercept_, y.mean())
    plain = selector(fit_intercept=False).fit(X, y - y.mean(), task)
    np.testing.assert_allclose(mean.coef_, plain.coef_, rtol=1e-12)
    shrunken = selector(task_offset="shrunken").fit(X, y, task)
    counts = np.array([np.sum(task == t) for t in NAMES])
    means = np.array([y[task == t].mean() for t in NAMES])
    within = sum(np.sum((y[task == t] - m) ** 2) for t, m in zip(NAMES, means, strict=True)) / (90 - 3)
    between = max(0.0, means.var() - np.mean(within / counts))
    np.testing.assert_allclose(shrunken.intercept_, y.mean() + (means - y.mean()) * between / (between + within / counts))
    with pytest.warns(UserWarning, match="selects no feature"):
        np.testing.assert_array_equal(selector(task_offset="shrunken").fit(X, np.full(90, 3.0), task).intercept_, 3.0)


@pytest.mark.parametrize("algorithm", ["da", "fista"])
def test_a_second_fit_is_a_fit_on_the_selection(algorithm):
    X, y, task = problem(11)
    both = selector(lam=0.6, refit=0.05, algorithm=algorithm, tol=1e-9).fit(X, y, task)
    first = selector(lam=0.6, algorithm=algorithm, tol=1e-9).fit(X, y, task)
    kept = first.get_support()
    assert 0 < kept.sum() < 8
    again = selector(lam=0.05, algorithm=algorithm, tol=1e-9).fit(X[:, kept], y, task)
    np.testing.assert_allclose(both.coef_[:, kept], again.coef_, atol=1e-12)
    assert not both.coef_[:, ~kept].any()
    assert both.objective_ == pytest.approx(again.objective_)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_selection_that_max_iter_ends_is_fitted_again_and_told(loss):
    """Without the second fit the model would be of another problem: that of the strong penalty, which was to choose only."""
    X, y, task = problem(11)
    X = sp.csr_array(X)  # sweeps over all features: those of a working set depend on where they begin
    y = y if loss == "squared" else np.where(y > np.median(y), 1, -1)
    given = {"lam": 0.05, "loss": loss, "algorithm": "fista", "tol": 1e-12, "max_iter": 2}
    with pytest.warns(ConvergenceWarning, match="max_iter=2 ended the fit before tol=1e-12"):
        first = selector(**given).fit(X, y, task)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 ended the selection before tol=1e-12 was reached; the second fit is on"):
        both = selector(**given, refit=1e-4).fit(X, y, task)
    np.testing.assert_array_equal(both.get_support(), first.get_support())
    assert not both.converged_ and both.history_["phase"].tolist()[-1] == 1
    with pytest.warns(ConvergenceWarning):
        again = selector(**{**given, "lam": 1e-4}).fit(X[:, first.get_support()], y, task)
    np.testing.assert_allclose(both.coef_[:, first.get_support()], again.coef_, atol=1e-12)
    assert both.objective_ == pytest.approx(again.objective_)


def test_a_second_fit_that_converges_does_not_hide_a_selection_that_was_cut_short(tmp_path):
    X, y, task = problem(11)
    X = sp.csr_array(X)
    given = {"lam": 0.05, "algorithm": "fista", "tol": 1e-6, "refit": 0.9, "max_iter": 3}
    with pytest.warns(ConvergenceWarning, match="ended the selection"):
        found = selector(**given).fit(X, y, task)
    assert found.dual_gap_ <= 1e-6 * found.objective_ and not found.converged_
    ingest((X, y), tmp_path / "s", task="regression", task_column=np.unique(task, return_inverse=True)[1])
    done = run_method("multitask-selector", given, data=str(tmp_path / "s"), run=str(tmp_path / "r"))
    assert done.summary["stop"] == "max_iter" and done.summary["certified_over"] == "the selected features"


# -- constant columns --------------------------------------------------------------------------------------------------------------


def constant_problem(seed=0, n=200):
    """A constant column that the target needs, one of zeros, two alike, and one that is constant in one task only."""
    rng = np.random.default_rng(seed)
    task = np.arange(n) % 2
    X = np.c_[np.full(n, 2.0), rng.choice([-1.0, 1.0], (n, 3)), np.zeros(n), np.where(task, 1.0, rng.normal(size=n))]
    X = np.c_[X, X[:, 1]]
    return X, 5 + X[:, 1] + 0.1 * rng.normal(size=n), task


def value_of(model, X, y, task, lam=0.01):
    """Objective of an amtfs machine from what it publishes."""
    values = (X * model.coef_[task]).sum(axis=1) + model.intercept_[task]
    losses = 0.5 * np.square(y - values) if model.loss == "squared" else np.logaddexp(0.0, -y * values)
    return sum(losses[task == q].mean() for q in (0, 1)) + lam * np.linalg.norm(model.coef_, axis=0).sum()


@pytest.mark.parametrize("algorithm", ["da", "fista"])
@pytest.mark.parametrize("scale", [None, "none", "unit-column", "standard", "unit-row"])
@pytest.mark.parametrize("bias", [False, True])
def test_what_is_published_is_what_was_learned(tmp_path, algorithm, scale, bias):
    """From arrays and from stores of every scaling: predictions, objective, and zeros exactly where a column is centred away."""
    X, y, task = constant_problem()
    model = MultiTaskSelector("amtfs", 0.01, 20.0, algorithm=algorithm, fit_intercept=bias, epochs=20, shuffle=False, max_iter=20_000)
    model.set_params(scale=None)
    if scale is None:
        model.fit(X, y, task)
    else:
        model.fit(ingest((X, y), tmp_path / "s", task="regression", task_column=task, scale=scale))
    raw = X if scale != "unit-row" else X / np.linalg.norm(X, axis=1)[:, None]
    values = (raw * model.coef_[task]).sum(axis=1) + model.intercept_[task]
    np.testing.assert_allclose(model.predict(X, task), values, atol=1e-12)
    if scale in (None, "none", "unit-row"):
        assert model.objective_ == pytest.approx(value_of(model, raw, y, task), rel=1e-12)
    else:
        sizes = X.std(axis=0) if scale == "standard" else np.linalg.norm(X, axis=0)
        told = sum(0.5 * np.square(y - values)[task == q].mean() for q in (0, 1))
        assert model.objective_ == pytest.approx(told + 0.01 * np.linalg.norm(model.coef_ * sizes, axis=0).sum(), rel=1e-9)
    centred = scale == "standard" or (bias and scale != "unit-row")
    assert not model.coef_[:, 4].any() and (not model.coef_[:, 0].any() if centred else bias or model.coef_[:, 0].all())
    if algorithm == "fista":
        error = np.sqrt(np.mean(np.square(y - values)))
        assert model.converged_ and error < (5.2 if centred and not bias else 0.6 if scale == "unit-row" else 0.2)


@pytest.mark.parametrize("algorithm", ["da", "fista"])
@pytest.mark.parametrize("bias", [False, True])
def test_one_entry_moved_a_little_changes_little(algorithm, bias):
    X, y, task = constant_problem()
    near = X.copy()
    near[7, 0] += 1e-9
    options = {
        "lam": 0.01,
        "gamma": 20.0,
        "algorithm": algorithm,
        "fit_intercept": bias,
        "epochs": 30,
        "shuffle": False,
        "max_iter": 20_000,
        "scale": None,
    }
    one, two = (MultiTaskSelector("amtfs", **options).fit(rows, y, task) for rows in (X, near))
    close = 1e-4 if algorithm == "fista" else 1e-6 if not bias else 0.1
    np.testing.assert_allclose(two.predict(X, task), one.predict(X, task), atol=close)
    assert two.objective_ == pytest.approx(one.objective_, rel=2e-2 if bias else 1e-3)


@pytest.mark.parametrize("algorithm", ["da", "fista"])
def test_beside_intercepts_nothing_but_constant_columns_is_an_intercept(algorithm):
    _, y, task = constant_problem()
    for X in (np.tile([1.0, -3.0, 0.0], (200, 1)), sp.csr_array(np.tile([1.0, -3.0, 0.0], (200, 1)))):
        with pytest.warns(UserWarning, match="selects no feature"):
            model = MultiTaskSelector("amtfs", 0.01, 20.0, algorithm=algorithm, fit_intercept=True, epochs=100).fit(X, y, task)
        assert not model.coef_.any()
        np.testing.assert_allclose(model.intercept_, [y[task == q].mean() for q in (0, 1)], atol=1e-9 if algorithm == "fista" else 0.02)


def test_a_second_fit_knows_no_constant_column_either():
    X, y, task = constant_problem()
    for algorithm in ("da", "fista"):
        model = selector(penalty="amtfs", lam=0.3, refit=0.001, algorithm=algorithm, fit_intercept=True, epochs=50, max_iter=20_000).fit(
            X, y, task
        )
        assert not model.coef_[:, [0, 4]].any() and model.coef_[:, 1].all()
        assert np.sqrt(np.mean(np.square(y - model.predict(X, task)))) < 0.2


@pytest.mark.parametrize("scale", ["unit-column", "unit-row"])
def test_a_stream_does_not_go_on_in_other_units(tmp_path, scale):
    X, y, task = constant_problem()
    store = ingest((X, y), tmp_path / "s", task="regression", task_column=task, scale=scale)
    with pytest.raises(ValueError, match="on a scaled store; use a new estimator"):
        selector().fit(store).partial_fit(X, y, task)


# -- as an estimator ---------------------------------------------------------------------------------------------------------------


def test_what_it_is_follows_from_the_loss():
    assert is_regressor(MultiTaskSelector()) and is_classifier(MultiTaskSelector(loss="hinge"))
    assert not hasattr(MultiTaskSelector(), "decision_function")
    assert not hasattr(MultiTaskSelector(algorithm="fista"), "partial_fit")
    X, y, task = problem(12, signs=True)
    machine = selector(loss="hinge", lam=0.2, fit_intercept=False).fit(X, y, task)
    np.testing.assert_array_equal(machine.predict(X, task), np.where(machine.decision_function(X, task) > 0, "up", "down"))
    np.testing.assert_allclose(
        machine.decision_function(X, task), (X * machine.coef_[np.searchsorted(NAMES, task)]).sum(axis=1), atol=1e-13
    )
    np.testing.assert_array_equal(machine.transform(X), X[:, machine.coef_.any(axis=0)])


# -- stores ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "sparse", "standard", "unit-row"])
def test_stores_give_the_bits_of_arrays(tmp_path, form):
    X, y, names = problem(13)
    task = np.searchsorted(NAMES, names) * 7
    scale = form if form in ("standard", "unit-row") else "none"
    store = ingest((sp.csr_array(X) if form == "sparse" else X, y), tmp_path / "s", task="regression", task_column=task, scale=scale)
    params = {"lam": 0.1, "gamma": 20.0, "epochs": 2, "fit_intercept": True, "task_offset": "shrunken"}
    run_method("multitask-selector", params, data=str(tmp_path / "s"), run=str(tmp_path / "run"), seed=0)
    model = load_model(tmp_path / "run")
    if scale == "none":
        same(model, MultiTaskSelector(**params).fit(X, y, task))
    same(model, MultiTaskSelector(**params).fit(store))
    values = model.predict(X, task)
    np.testing.assert_allclose(values, model.predict(store), atol=1e-10)
    np.testing.assert_allclose(values, model.predict(store, task), atol=1e-10)
    predict_store(str(tmp_path / "run"), str(tmp_path / "s"), str(tmp_path / "p.npz"))
    table = score_store(str(tmp_path / "run"), str(tmp_path / "s"))
    assert table["r2"] == pytest.approx(model.score(X, y, task), abs=1e-10)
    assert [row["task"] for row in table["tasks"]] == [0, 7, 14]
    with pytest.raises(ValueError, match="this estimator was loaded, fitted as a batch"):
        model.set_params(task_offset=None).partial_fit(X, y, task)


@pytest.mark.parametrize("signs", [False, True])
def test_grids_are_compared_on_rows_held_out(tmp_path, signs):
    X, y, names = problem(14, n=150, signs=signs)
    task = np.searchsorted(NAMES, names)
    ingest((X, y), tmp_path / "s", task="classification" if signs else "regression", task_column=task)
    loss = "logistic" if signs else "squared"
    grid, params = {"lam": [0.02, 50.0]}, {"gamma": 2.0, "loss": loss, "epochs": 20, "fit_intercept": not signs}
    found = tune("multitask-selector", grid, data=str(tmp_path / "s"), run=str(tmp_path / "tuned"), params=params, folds=3)
    assert found.summary["best"]["lam"] == 0.02
    assert found.summary["accuracy" if signs else "r2"] > 0.5
    assert load_model(tmp_path / "tuned").lam == 0.02


# -- bad input ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"lam": -1.0}, r"lam=-1.0"),
        ({"gamma": 0.0}, r"gamma=0.0"),
        ({"penalty": "l1"}, r"penalty='l1'"),
        ({"epochs": 0}, "epochs=0"),
        ({"task_offset": "mean", "loss": "hinge"}, r"task_offset='mean' is subtracted from numbers; it needs loss='squared', not 'hinge'"),
        ({"refit": 0.0, "algorithm": "fista"}, "refit=0: algorithm='fista' cannot bound its gap"),
        ({"class_weight": "balanced"}, "class_weight='balanced': loss='squared' fits numbers"),
    ],
)
def test_parameters_are_refused_with_their_rule(params, words):
    X, y, task = problem(0)
    with pytest.raises(ValueError, match=words):
        MultiTaskSelector(**params).fit(X, y, task)


def test_targets_and_tasks_are_refused_with_their_place(tmp_path):
    X, y, task = problem(0, signs=True)
    with pytest.raises(ValueError, match="Only binary classification"):
        selector(loss="hinge").fit(X, np.arange(90) % 3, task)
    with pytest.raises(ValueError, match="task has shape"):
        selector(loss="hinge").fit(X, y, task[:80])
    spoiled = X.copy()
    spoiled[40, 1] = np.inf
    with pytest.raises(ValueError, match="row 40, column 1: Input X contains infinity"):
        selector(loss="hinge").fit(spoiled, y, task)
    with pytest.raises(ValueError, match="X holds strings"):
        selector(loss="hinge").fit(["a"] * 90, y, task)
    with pytest.raises(ValueError, match="task is None; the model knows 3 tasks"):
        selector(loss="hinge").fit(X, y, task).predict(X)
    with pytest.raises(DataError, match="task 'ash' has no row"):
        selector(loss="hinge").fit(X, y, task, (task != "ash").astype(float))
    codes = np.searchsorted(NAMES, task)
    ingest((X, y), tmp_path / "s", task_column=codes)
    with pytest.raises(ValueError, match="the target holds classes; use 'logistic'"):
        run_method("multitask-selector", {}, data=str(tmp_path / "s"), run=str(tmp_path / "run"))
    with pytest.raises(MemoryBoundExceeded, match=r"would hold .*driver_memory=1000 B: .*feed the rows in pieces with MultiTaskSelector"):
        run_method(
            "multitask-selector", {"loss": "logistic", "epochs": 2}, data=str(tmp_path / "s"), run=str(tmp_path / "run"), driver_memory=1000
        )
    assert not (tmp_path / "run").exists()
    ingest((X, X[:, 0]), tmp_path / "r", task="regression", task_column=codes)
    with pytest.raises(ValueError, match="the target holds real numbers; use 'squared'"):
        run_method("multitask-selector", {"loss": "hinge"}, data=str(tmp_path / "r"), run=str(tmp_path / "run"))


def test_a_stream_refuses_rows_before_it_learns_from_any():
    X, y, task = problem(15, signs=True)
    machine = selector(loss="logistic").partial_fit(X[:30], y[:30], task[:30], tasks=NAMES)
    before = machine.coef_.copy()
    spoiled = X[30:60].copy()
    spoiled[7, 2] = np.nan
    for form in (spoiled, sp.csr_array(spoiled)):
        with pytest.raises(ValueError, match="row 7, column 2: Input"):
            machine.partial_fit(form, y[30:60], task[30:60])
    with pytest.raises(ValueError, match="X has 7 features, but MultiTaskSelector is expecting 8"):
        machine.partial_fit(X[30:60, :7], y[30:60], task[30:60])
    with pytest.raises(ValueError, match=r"row 0: label 'left' is not among the classes \['down', 'up'\]"):
        machine.partial_fit(X[30:60], np.where(y[30:60] == "up", "left", "left"), task[30:60])
    with pytest.raises(ValueError, match="task 'oak' was not there at fit"):
        machine.partial_fit(X[30:60], y[30:60], np.full(30, "oak"))
    np.testing.assert_array_equal(machine.coef_, before)
    with pytest.raises(ValueError, match="there must be two; name both"):
        selector(loss="logistic").partial_fit(X[:1], y[:1], task[:1])
    with pytest.raises(AttributeError, match="partial_fit") as caught:
        selector(refit=0.1).partial_fit(X, y, task)
    assert "refit=0.1 needs all rows at once" in str(caught.value.__cause__)


@pytest.mark.parametrize("ask", ["fit", "partial_fit"])
def test_divergence_names_gamma(ask):
    X, y, task = problem(16)
    with pytest.raises(ValueError, match=r"gamma=1: predictions grow without bound \(.*row \d+, task '\w+'\); raise gamma"):
        getattr(MultiTaskSelector(epochs=9), ask)(np.tile(1e3 * X, (4, 1)), np.tile(y, 4), np.tile(task, 4))
