"""Predictions and scores of a finished run on a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_regressor

from ...cluster import driver_bytes, open_executor
from ...kernels.jit import one_thread
from ...kernels.svm.triclass import crossing_point
from ...storage import BlockStore, DataError, DigestMismatch, RunStore, StorageError, digest_of
from ...storage.errors import UserData
from ..core.memory import Memory, few_blocks_kept, process_bytes, refuse, refuse_step
from ..core.resources import Emit, Resources, ignore
from ..estimators.base import Estimator
from ..estimators.kernels import MappedRows
from ..inputs.covariates import Covariates, given_covariates
from ..inputs.scores import held_out_rows, predicted_codes, r_squared, task_accuracies, task_variances
from ..inputs.tasks import store_codes
from ..methods.rule_ensemble.model import RuleModel
from ..models.calibration import Calibration, brier_score, class_probabilities, log_loss
from ..models.linear import LinearModel
from ..models.task import TaskModel
from ..records.compute import ComputeOptions
from ..records.csv_texts import CsvTexts
from ..records.run_view import HELD_OUT_ROWS, OTHER_ROWS, TRAINING_ROWS
from .data import as_store, replaced_data
from .decisions import decision_rows
from .evaluation import evaluate_classes, evaluate_numbers
from .load import calibration_of, calibration_plan, check_encoding, known_of, load_model, row_map_of, row_map_plan
from .predict_planning import first_pass, predict_items, predict_plan, step_bytes
from .predictions import Predicted, Predictions, predictions_writer, refuse_foreign
from .run import method_named, open_data


def _open_run(run: str, store: str) -> tuple[RunStore, Path, Estimator, BlockStore]:
    """Return the run, the folder of its model, the fitted estimator, and the data."""
    folder = RunStore.open(run)
    record = folder.config
    model = folder.path / ("best/model" if "tune" in record else "model")
    return folder, model, load_model(run), open_data(store, method_named(record.get("method") or record["tune"]))


def _folder_of(run: str) -> Path:
    """Return the folder of a run's model; for a search, that of the best fit."""
    folder = RunStore.open(run)
    return folder.path / "best" if "tune" in folder.config else folder.path


def _decide(
    run: str, store: str, where: ComputeOptions, emit: Emit, out: str | None = None, covariates: UserData = None, proba: bool = False
) -> tuple[Estimator, BlockStore, np.ndarray]:
    folder, model, estimator, data = _open_run(run, store)
    check_encoding(model.parent, data)
    digest, limit = digest_of(model), driver_bytes(where.driver_memory)
    if _needs_map(estimator, data):
        estimator.model_ = row_map_of(str(model.parent), where, emit)
    covariates = _known_covariates(estimator, covariates, data)
    has_chances = proba or known_of(estimator, _folder_of(run)) is not None
    memory = _check_memory(estimator, data, out, where, emit, covariates, has_chances)
    if message := replaced_data(folder):
        emit({"event": "warning", "message": message})
    with one_thread(), open_executor(where.config(), events=emit) as executor, few_blocks_kept(memory, limit, executor.kind):
        resources = Resources(executor, driver_memory=limit, emit=emit)
        values = estimator.model_.decision_values(data, resources, covariates=covariates)
        data.confirm()
    if digest_of(model) != digest:
        raise DigestMismatch(f"{model} was replaced during this command, because the run was fitted again; repeat the command")
    return estimator, data, values


def _needs_map(estimator: Estimator, data: BlockStore) -> bool:
    """Return whether predictions are coordinates of rows that were not in the fit of a learnt kernel or map."""
    return isinstance(estimator, MappedRows) and not estimator.model_.is_fitted_on(data)


def _known_covariates(estimator: Estimator, covariates: UserData, data: BlockStore) -> Covariates | None:
    """Return the covariates of a store's rows from an array, a file, or the record of a file
    (:func:`gramplane.storage.columns_file`). Raises ValueError if the model takes none.
    """
    if covariates is None:
        return None
    if not hasattr(estimator.model_, "covariate_names"):
        raise ValueError(f"covariates: {type(estimator).__name__} does not use covariates; leave them out")
    return given_covariates(covariates, data.n_rows)


def _check_memory(
    estimator: Estimator,
    data: BlockStore,
    out: str | None,
    where: ComputeOptions,
    emit: Emit,
    covariates: Covariates | None,
    proba: bool,
) -> Memory:
    """Return the planned memory of predictions: that of this process, and that of a step of the pass. Raises an error if either memory
    exceeds its limit.
    """
    limit, name = driver_bytes(where.driver_memory), "score" if out is None else "predict"
    items = predict_items(estimator.model_, data, out, getattr(estimator, "classes_", None), proba)
    refuse(name, items, limit, f"{name} fewer rows at a time (a store of some of them)")
    memory = Memory(items, step_bytes(first_pass(estimator.model_, data, limit, emit, covariates)))
    refuse_step(name, memory, limit, where.config().kind)
    return memory


def _plan_prediction(
    run: str,
    store: str,
    out: str | None,
    where: ComputeOptions,
    emit: Emit,
    covariates: UserData,
    three_way: bool = False,
    proba: bool = False,
) -> dict[str, Any]:
    _, model, estimator, data = _open_run(run, store)
    _check_three_way(estimator, three_way)
    check_encoding(model.parent, data)
    if _needs_map(estimator, data):
        estimator.model_ = row_map_plan(model.parent)
    later, is_known = {}, known_of(estimator, _folder_of(run)) is not None
    if proba and not is_known:
        _check_proba(estimator)
        later = calibration_plan(_folder_of(run))
    known = _known_covariates(estimator, covariates, data)
    memory = _check_memory(estimator, data, out, where, emit, known, proba or is_known)
    config, limit = where.config(), driver_bytes(where.driver_memory)
    plan = predict_plan(estimator.model_, data, memory.items, limit, config.kind, emit, known)
    process = {"cluster": where.cluster, "process_bytes_at_most": process_bytes(config, plan["task_bytes"])}
    return {"run": run, "data": data.url, **({} if out is None else {"out": out}), **process, **plan, **later}


def _check_three_way(estimator: Estimator, three_way: bool) -> None:
    if three_way and not hasattr(estimator, "predict_three_way"):
        raise ValueError(
            f"three_way: {type(estimator).__name__} predicts its classes only; three_way is for tri-class-svm, so leave it out"
        )


def predict_store(
    run: str,
    store: str,
    out: str,
    *,
    covariates: UserData = None,
    three_way: bool = False,
    proba: bool = False,
    replace: bool = False,
    cluster: str = "sync",
    allow_plaintext: bool = False,
    on_event: Emit | None = None,
    excel_safe: bool = False,
    dry_run: bool = False,
    **where: Any,
) -> dict[str, Any]:
    """Write predictions and decision values of a store's rows. The file ending of ``out`` selects the format (npz, csv, parquet, zarr).

    Rows are named by the ids of the store, or numbered from 0. Instead of a store, a file such as a table can be given. It is converted to
    a temporary store with the encoding of the training data.

    Options:

    - ``covariates``: covariates of the rows, if the model needs them and the store has none: an array, or a file (csv, npy, npz, parquet).
    - ``proba``: calibrate class probabilities now if necessary, and keep the calibration for later calls. Calibration takes about five
      fits on the training store. Without ``proba``, probabilities are written only for a logistic loss or if the model was calibrated in
      the fit.
    - ``three_way``: for tri-class models; rows of neither class are predicted as ``irrelevant_label``.
    - ``replace``: replace an existing ``out`` even if it does not contain predictions.
    - ``excel_safe``: quote texts in a .csv file that a spreadsheet would evaluate (they begin with =, @, + or -). Otherwise, a warning
      reports such texts.
    - ``dry_run``: return the plan without computing or writing.

    Returns ``rows``, ``out`` and the number of rows per predicted label (without classes: the number of columns). The plan of a dry run has
    rows, tasks of a pass, memory of a task, and the memory of this process (``driver_holds``: item, bytes). Raises MemoryBoundExceeded if
    this process would exceed ``driver_memory``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, predict_store, run_method
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> outcome = run_method(
    ...     "fgm", {"B": 2, "max_rounds": 2}, data="stores/iris", run="runs/iris"
    ... )
    >>> predict_store("runs/iris", "stores/iris", "predictions.csv")["rows"]
    150
    """
    emit = on_event or ignore
    write = predictions_writer(out, CsvTexts(excel_safe, lambda message: emit({"event": "warning", "message": message})))
    refuse_foreign(out, None if replace else Predictions.__name__)
    options = ComputeOptions(cluster, allow_plaintext=allow_plaintext, **where)
    with as_store(run, store, emit) as place:
        if dry_run:
            return _plan_prediction(run, place, out, options, emit, covariates, three_way, proba)
        return _predict(run, place, out, write, options, emit, covariates, three_way, proba)


def _predict(
    run: str,
    store: str,
    out: str,
    write: Callable[[Predicted], None],
    options: ComputeOptions,
    emit: Emit,
    covariates: UserData,
    three_way: bool,
    proba: bool,
) -> dict[str, Any]:
    estimator, data, values = _decide(run, store, options, emit, out, covariates, proba)
    _check_three_way(estimator, three_way)
    calibration = _calibration(estimator, run, options, emit, proba)
    if not hasattr(estimator, "classes_"):
        # A regression, or components of a method without a target: the values are what there is to predict.
        write(Predicted(data.ids(), None, values))
        return {"rows": len(values), "out": out, "columns": values.shape[1]}
    labels = _three_way(estimator, values) if three_way else estimator.classes_[predicted_codes(values.T)]
    chances = () if calibration is None else (estimator.classes_, class_probabilities(calibration, values))
    write(Predicted(data.ids(), labels, values, *chances))
    names, counts = np.unique(labels, return_counts=True)
    return {"rows": len(labels), "out": out, "predicted": {str(name): int(count) for name, count in zip(names, counts, strict=True)}}


def _calibration(estimator: Estimator, run: str, where: ComputeOptions, emit: Emit, proba: bool) -> Calibration | None:
    """Return the calibration of a run's model, or ``None``. With ``proba``, a missing one is computed."""
    folder = _folder_of(run)
    known = known_of(estimator, folder)
    if known is not None or not proba:
        return known
    _check_proba(estimator)
    return calibration_of(str(folder), where, emit)


def _check_proba(estimator: Estimator) -> None:
    if not hasattr(estimator, "predict_proba") or not hasattr(estimator, "classes_"):
        reason = "was fitted with probability=False" if hasattr(estimator, "classes_") else "has no classes"
        raise ValueError(f"proba: {type(estimator).__name__} {reason}, so there are no probabilities")


def _three_way(estimator: Any, values: np.ndarray) -> np.ndarray:
    """Return predicted labels, including rows of neither class; as texts if labels are of several types."""
    labels = estimator.three_way_labels_
    # The label of rows of no class lies between two classes, and after several.
    labels = (labels[[0, 2, 1]] if values.shape[1] == 1 else labels)[_three_way_codes(estimator, values)]
    return labels.astype(str) if labels.dtype.kind == "O" else labels


def _three_way_codes(estimator: Estimator, values: np.ndarray) -> np.ndarray:
    """Return the class that a tri-class model assigns to each row, ``(n,)``; -1 for none."""
    is_neither = np.all(np.abs(values) < crossing_point(estimator.model_.figures["eps"]), axis=1)
    return np.where(is_neither, -1, predicted_codes(values.T))


def score_store(
    run: str,
    store: str,
    *,
    covariates: UserData = None,
    cluster: str = "sync",
    allow_plaintext: bool = False,
    on_event: Emit | None = None,
    dry_run: bool = False,
    **where: Any,
) -> dict[str, Any]:
    """Return the scores of a run on a store.

    Classification: accuracy; precision, recall and F1 per class; for two classes the area under the ROC curve; with probabilities also
    log-loss and Brier score. Regression: R2 and errors. Scores have 95 % bootstrap intervals, with a fixed seed. For comparison there is
    the score of always predicting the most frequent class (``majority``), or the mean. For multi-task models, the result also has the mean
    over tasks and a row per task; all other scores are over all rows. Further tables are for reports (confusion matrix, curves,
    calibration, predictions).

    ``rows_are`` describes the scored rows; on the training store of a run with ``test_share``, these are the held-out rows. ``store`` may
    be a file. ``covariates`` and ``dry_run`` are as in :func:`predict_store`. Raises MemoryBoundExceeded if this process would exceed
    ``driver_memory``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, run_method, score_store
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> outcome = run_method(
    ...     "fgm", {"B": 2, "max_rounds": 2}, data="stores/iris", run="runs/iris"
    ... )
    >>> score_store("runs/iris", "stores/iris")["accuracy"] > 0.9
    True
    """
    options, emit = ComputeOptions(cluster, allow_plaintext=allow_plaintext, **where), on_event or ignore
    with as_store(run, store, emit) as place:
        if dry_run:
            return _plan_prediction(run, place, None, options, emit, covariates)
        return _score(run, place, options, emit, covariates)


def _score(run: str, store: str, options: ComputeOptions, emit: Emit, covariates: UserData) -> dict[str, Any]:
    estimator, data, values = _decide(run, store, options, emit, None, covariates)
    folder = RunStore.open(run)
    record, summary = folder.config, folder.read_json("summary")
    if summary is None:
        raise StorageError(f"{run}: the run is not finished; continue it with `gramplane resume {run}`")
    if not hasattr(estimator, "classes_"):
        if not is_regressor(estimator):
            name = type(estimator).__name__
            raise ValueError(f"{run}: {name} learns without a target, there is nothing to score; predict writes its components")
        # Methods that hold no rows out of a regression were fitted to all.
        rows, which = _scored_rows(record if "test_r2" in summary else {**record, "extra": {}}, data)
        table = {**which, **_score_numbers(estimator, data, values[:, 0], rows)}
        known = _known_covariates(estimator, covariates, data)
        path = _path(estimator, data, rows, options, known, lambda values: {"r2": r_squared(data.target()[rows], values[:, 0])})
        decision = decision_rows(estimator, data, values, data.target(), rows)
        return {**table, **({"path": path} if path else {}), **({"decision": decision} if decision else {})}
    truth, (rows, which) = _truth(estimator, data), _scored_rows(record, data)
    neither = {}
    if hasattr(estimator, "predict_three_way"):
        # Rows of no class, and the accuracy with them; the other figures are of rows of the classes.
        three_way = float(np.mean((_three_way_codes(estimator, values) == truth)[rows]))
        neither, rows = {"rows_of_neither": int(np.sum(rows & (truth < 0))), "three_way_accuracy": three_way}, rows & (truth >= 0)
        if not rows.any():
            raise DataError("no row has a label of the classes, so there is nothing to score", data.url)
    calibration = known_of(estimator, _folder_of(run))
    chances = None if calibration is None else class_probabilities(calibration, values[rows])
    table = {**which, "rows": int(rows.sum()), **_metrics(truth[rows], values[rows], estimator.classes_)}
    table |= evaluate_classes(truth[rows], values[rows], estimator.classes_.tolist(), chances)
    table |= {} if chances is None else _probability_metrics(truth[rows], chances)
    if _by_task(estimator.model_):
        table |= task_accuracies(*_tasks(estimator.model_, data, rows), truth[rows], values[rows])
    known = _known_covariates(estimator, covariates, data)
    path = _path(
        estimator, data, rows, options, known, lambda values: {"accuracy": float(np.mean(predicted_codes(values.T) == truth[rows]))}
    )
    decision = decision_rows(estimator, data, values, truth, rows)
    return {**table, **neither, "path": path, **({"decision": decision} if decision else {})}


def _score_numbers(estimator: Estimator, data: BlockStore, values: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
    if not data.has_table("y") or data.meta.labels is not None:
        raise DataError("there is no real-valued target to compare predictions with", data.url)
    truth, values = data.target()[rows], values[rows]
    r2, error = r_squared(truth, values), truth - values
    tasks = task_variances(*_tasks(estimator.model_, data, rows), truth, values) if _by_task(estimator.model_) else {}
    errors = {"rmse": float(np.sqrt(np.square(error).mean())), "mae": float(np.abs(error).mean())}
    return {"rows": len(values), "r2": r2 if np.isfinite(r2) else None, **errors, **evaluate_numbers(truth, values), **tasks}


def _by_task(model: object) -> bool:
    return isinstance(model, TaskModel) or (isinstance(model, LinearModel | RuleModel) and model.tasks is not None)


def _tasks(model: TaskModel | LinearModel | RuleModel, data: BlockStore, rows: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Return the tasks of the scored rows as indices, and the task names."""
    return store_codes(model, data)[rows], model.tasks or ()


def _path(
    estimator: Estimator,
    data: BlockStore,
    rows: np.ndarray,
    where: ComputeOptions,
    covariates: Covariates | None,
    measure: Callable[[np.ndarray], dict[str, float]],
) -> list[dict[str, Any]]:
    """Return a measure of the decision values on some rows for every model of the path, one model per round."""
    with one_thread(), open_executor(where.config()) as executor:
        resources = Resources(executor, driver_memory=driver_bytes(where.driver_memory))
        along = estimator.model_.staged_decision_values(data, resources, covariates=covariates)
    return [{"n_selected": count, **measure(values[rows])} for count, values in along]


def _truth(estimator: Estimator, data: BlockStore) -> np.ndarray:
    if not data.has_table("y"):
        raise DataError("there is no target, so nothing to compare predictions with; predict works without one", data.url)
    if data.meta.labels is None:
        raise DataError("the target is real-valued; ingest the file with --like TRAINING_STORE", data.url)
    known = {json.dumps(label): code for code, label in enumerate(estimator.classes_.tolist())}
    codes = np.array([known.get(json.dumps(label), -1) for label in data.meta.labels])
    return codes[data.target().astype(np.int64)]


def _scored_rows(record: Mapping[str, Any], data: BlockStore) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the mask of the scored rows, and their description."""
    mask, which = None, OTHER_ROWS
    if data.digest == record["data_digest"].partition(":")[0]:  # behind a colon: the scaling of the fit
        mask = held_out_rows(record["extra"], data.target(), int(record["seed"]), data.meta.labels)
        which = TRAINING_ROWS if mask is None else HELD_OUT_ROWS
    return np.ones(data.n_rows, dtype=bool) if mask is None else mask, {"rows_are": which, "data_digest": data.digest}


def _probability_metrics(truth: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """Return log-loss and Brier score over the rows whose class is known."""
    known = truth >= 0
    if not known.any():
        return {}
    truth, probabilities = truth[known], probabilities[known]
    return {"log_loss": log_loss(probabilities, truth), "brier_score": brier_score(probabilities, truth)}


def _metrics(truth: np.ndarray, values: np.ndarray, classes: np.ndarray) -> dict[str, Any]:
    from sklearn.metrics import precision_recall_fscore_support, roc_auc_score

    codes = predicted_codes(values.T)
    per_class: Any = precision_recall_fscore_support(truth, codes, labels=np.arange(len(classes)), zero_division=0.0)  # pyright: ignore[reportArgumentType] (a float is documented)
    table: dict[str, Any] = {"accuracy": float(np.mean(codes == truth))}
    if values.shape[1] == 1 and len(np.unique(truth)) == 2:
        table["auc"] = float(roc_auc_score(truth, values[:, 0]))
    table["classes"] = [
        {"label": label, "precision": float(p), "recall": float(r), "f1": float(f), "support": int(n)}
        for label, p, r, f, n in zip(classes.tolist(), *per_class, strict=True)
    ]
    return table
