"""Using a finished run on a store: predictions to a file, and the metric table."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_regressor

from ...cluster import driver_bytes, open_executor
from ...kernels.jit import one_thread
from ...kernels.svm.triclass import crossing_point
from ...storage import BlockStore, DataError, DigestMismatch, RunStore, StorageError, digest_of, write_model
from ...storage.places import check_place
from ...storage.urls import holds_store, require_place, whole_file
from ..estimators.base import MethodEstimator, predictor_of
from ..inputs.scores import held_out_rows, predicted_codes, r_squared, task_accuracies, task_variances
from ..methods.rule_ensemble.model import RuleModel
from ..models.calibration import Calibration, brier_score, class_probabilities, log_loss, probability_names
from ..models.linear import LinearModel
from ..models.task import TaskModel
from ..models.task_predict import store_codes
from ..records.compute import ComputeOptions
from ..records.context import Emit, RunContext, ignore
from ..records.holdings import Holding, refuse_beyond
from ..records.run_view import HELD_OUT_ROWS, OTHER_ROWS, TRAINING_ROWS
from .evaluation import evaluate_classes, evaluate_numbers
from .load import calibration_of, calibration_plan, known_of, load_model
from .outputs import refuse_foreign
from .predict_planning import first_pass, predict_holdings, predict_plan, step_bytes
from .replaced import replaced_data
from .run import few_blocks_kept, method_named, open_data, process_bytes, refuse_step


def _opened(run: str, store: str) -> tuple[RunStore, Path, MethodEstimator, BlockStore]:
    """Return the run, the place of its model, the fitted estimator, and the data."""
    folder = RunStore.open(run)
    record = folder.config
    model = folder.path / ("best/model" if "tune" in record else "model")
    return folder, model, load_model(run), open_data(store, method_named(record.get("method") or record["tune"]))


def _folder_of(run: str) -> Path:
    """Return the folder of the run that has the model: of a tuned one the best fit's."""
    folder = RunStore.open(run)
    return folder.path / "best" if "tune" in folder.config else folder.path


def _decide(
    run: str, store: str, where: ComputeOptions, emit: Emit, out: str | None = None, proba: bool = False
) -> tuple[MethodEstimator, BlockStore, np.ndarray]:
    folder, model, estimator, data = _opened(run, store)
    digest, limit = digest_of(model), driver_bytes(where.driver_memory)
    holdings, step = _check_memory(estimator, data, out, where, emit, proba or known_of(estimator, _folder_of(run)) is not None)
    if message := replaced_data(folder):
        emit({"event": "warning", "message": message})
    with one_thread(), open_executor(where.config(), events=emit) as executor, few_blocks_kept(holdings, step, limit, executor.kind):
        ctx = RunContext(executor, data, None, limit, emit)
        values = predictor_of(estimator).decision_values(estimator.model_, ctx)
        ctx.confirm()
    if digest_of(model) != digest:
        raise DigestMismatch(f"{model} was replaced while it was used: the run was fitted again; give the command again")
    return estimator, data, values


def _check_memory(
    estimator: MethodEstimator, data: BlockStore, out: str | None, where: ComputeOptions, emit: Emit, proba: bool
) -> tuple[list[Holding], int]:
    """Return what this process will hold of predictions, and the bytes of a step of their pass; refuse more than it may."""
    limit, name = driver_bytes(where.driver_memory), "score" if out is None else "predict"
    holdings = predict_holdings(predictor_of(estimator), estimator.model_, data, out, getattr(estimator, "classes_", None), proba)
    refuse_beyond(holdings, limit, name, f"{name} fewer rows at a time (a store of some of them)")
    step = step_bytes(first_pass(predictor_of(estimator), estimator.model_, data, limit, emit))
    refuse_step(holdings, step, limit, where.config().kind, name)
    return holdings, step


def _planned(
    run: str, store: str, out: str | None, where: ComputeOptions, emit: Emit, three_way: bool = False, proba: bool = False
) -> dict[str, Any]:
    _, _, estimator, data = _opened(run, store)
    _check_three_way(estimator, three_way)
    later, is_known = {}, known_of(estimator, _folder_of(run)) is not None
    if proba and not is_known:
        _check_proba(estimator)
        later = calibration_plan(_folder_of(run))
    holdings, _ = _check_memory(estimator, data, out, where, emit, proba or is_known)
    config = where.config()
    plan = predict_plan(predictor_of(estimator), estimator.model_, data, holdings, driver_bytes(where.driver_memory), config.kind, emit)
    process = {"cluster": where.cluster, "process_bytes_at_most": process_bytes(config, plan["task_bytes"])}
    return {"run": run, "data": data.url, **({} if out is None else {"out": out}), **process, **plan, **later}


def _check_three_way(estimator: MethodEstimator, three_way: bool) -> None:
    if three_way and not hasattr(estimator, "predict_three_way"):
        raise ValueError(f"three_way: {type(estimator).__name__} predicts its classes only; tri-class-svm knows rows of neither class")


def predict_store(
    run: str,
    store: str,
    out: str,
    *,
    three_way: bool = False,
    proba: bool = False,
    replace: bool = False,
    cluster: str = "sync",
    allow_plaintext: bool = False,
    on_event: Emit | None = None,
    dry_run: bool = False,
    **where: Any,
) -> dict[str, Any]:
    """Write predictions and decision values of a store's rows; the form follows the ending of ``out`` (npz, csv, parquet, zarr).

    Probabilities of the classes are written where the model has them: of a logistic loss, or calibrated at fit. With ``proba`` they are
    calibrated now if need be, from the store that the run was fitted on, by about five fits, and kept for the next time. With ``three_way``
    rows of neither class are predicted as such, by a tri-class machine: with its ``irrelevant_label``. What is there already is replaced if
    it holds predictions, or with ``replace``. With ``dry_run`` nothing is computed or written.

    Returns ``rows``, ``out`` and the number of rows per predicted label (without classes: the number of columns). With ``dry_run`` the
    plan: rows, tasks of a pass and memory of a task, and what this process will hold (``driver_holds``: what, formula, bytes). Raises
    MemoryBoundExceeded: this process would hold more than ``driver_memory``.
    """
    write = predictions_writer(out)
    refuse_foreign(out, None if replace else Predictions.__name__)
    options = ComputeOptions(cluster, allow_plaintext=allow_plaintext, **where)
    if dry_run:
        return _planned(run, store, out, options, on_event or ignore, three_way, proba)
    estimator, _, values = _decide(run, store, options, on_event or ignore, out, proba)
    _check_three_way(estimator, three_way)
    calibration = _calibration(estimator, run, options, on_event or ignore, proba)
    if not hasattr(estimator, "classes_"):
        # A regression, or components of a method without a target: the values are what there is to predict.
        write(None, values)
        return {"rows": len(values), "out": out, "columns": values.shape[1]}
    labels = _three_way(estimator, values) if three_way else estimator.classes_[predicted_codes(values.T)]
    write(labels, values, None if calibration is None else Probabilities(estimator.classes_, class_probabilities(calibration, values)))
    names, counts = np.unique(labels, return_counts=True)
    return {"rows": len(labels), "out": out, "predicted": {str(name): int(count) for name, count in zip(names, counts, strict=True)}}


@dataclass(frozen=True)
class Probabilities:
    """Probabilities of classes ``(n, n_classes)``, with their labels."""

    labels: np.ndarray
    values: np.ndarray

    def columns(self) -> dict[str, np.ndarray]:
        """Return one column per class, by name."""
        return dict(zip(probability_names(self.labels.tolist()), self.values.T, strict=True))


def _calibration(estimator: MethodEstimator, run: str, where: ComputeOptions, emit: Emit, proba: bool) -> Calibration | None:
    """Return how decision values become probabilities, where the model of a run knows; with ``proba`` calibrated now if it does not."""
    folder = _folder_of(run)
    known = known_of(estimator, folder)
    if known is not None or not proba:
        return known
    _check_proba(estimator)
    return calibration_of(str(folder), where, emit)


def _check_proba(estimator: MethodEstimator) -> None:
    if not hasattr(estimator, "predict_proba") or not hasattr(estimator, "classes_"):
        reason = "was fitted with probability=False" if hasattr(estimator, "classes_") else "has no classes"
        raise ValueError(f"proba: there are no probabilities, {type(estimator).__name__} {reason}")


def _three_way(estimator: Any, values: np.ndarray) -> np.ndarray:
    """Return labels, rows of neither class among them; texts where these are of several kinds."""
    labels = estimator.three_way_labels_[np.where(_is_neither(estimator, values), 1, 2 * (values[:, 0] > 0))]
    return labels.astype(str) if labels.dtype.kind == "O" else labels


def _is_neither(estimator: MethodEstimator, values: np.ndarray) -> np.ndarray:
    """Return which rows are in neither class of a tri-class machine, ``(n,)``."""
    return np.abs(values[:, 0]) < crossing_point(estimator.model_.figures["eps"])


def _table(labels: np.ndarray | None, values: np.ndarray, probabilities: Probabilities | None) -> dict[str, np.ndarray]:
    if labels is None:
        one = values.shape[1] == 1
        return {"prediction": values[:, 0]} if one else {f"component_{k}": values[:, k] for k in range(values.shape[1])}
    more = {} if probabilities is None else probabilities.columns()
    if values.shape[1] == 1:
        return {"prediction": labels, "decision": values[:, 0], **more}
    return {"prediction": labels, **{f"decision_{k}": values[:, k] for k in range(values.shape[1])}, **more}


def _save_npz(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    with path.open("wb") as file:
        np.savez(file, **columns)  # pyright: ignore[reportArgumentType] (no name of ours is one of its options)


def _save_csv(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in itertools.chain([columns], zip(*(column.tolist() for column in columns.values()), strict=True)):
            texts = [repr(value) if isinstance(value, float) else str(value) for value in row]
            cells = ('"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n') else text for text in texts)
            file.write(",".join(cells) + "\n")


def _save_parquet(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({name: pyarrow.array(column.tolist()) for name, column in columns.items()}), path)


@dataclass(frozen=True)
class Predictions:
    """Predicted labels (as codes into ``labels``; without classes numbers) and decision values, saved as a Zarr group.

    Where there are probabilities, of the ``classes`` in this order.
    """

    labels: tuple[str, ...]
    prediction: np.ndarray
    decision: np.ndarray
    classes: tuple[str, ...] = ()
    probability: np.ndarray | None = None


def _write_zarr(url: str, labels: np.ndarray | None, values: np.ndarray, probabilities: Probabilities | None = None) -> None:
    if labels is None:
        write_model(url, Predictions((), values[:, 0], values))
        return
    names, codes = np.unique(labels, return_inverse=True)
    predictions = Predictions(tuple(str(name) for name in names), codes, values)
    if probabilities is not None:
        classes = tuple(str(label) for label in probabilities.labels.tolist())
        predictions = dataclasses.replace(predictions, classes=classes, probability=probabilities.values)
    write_model(url, predictions)


_FILES: dict[str, Callable[[Path, Mapping[str, np.ndarray]], None]] = {".npz": _save_npz, ".csv": _save_csv, ".parquet": _save_parquet}
_ENDINGS = (*_FILES, ".zarr")


def _place_of(out: str, endings: Iterable[str]) -> tuple[str, str]:
    url = check_place(out, "predictions", "out")
    suffix = Path(url).suffix.lower()
    if suffix not in endings:
        raise ValueError(f"out={out!r}: the ending must be one of {', '.join(endings)}")
    return url, suffix


def table_writer(out: str) -> Callable[[Mapping[str, np.ndarray]], int]:
    """Return what writes a table of columns to a path or URL, which is asked now whether it can be written to; it returns the lines."""
    url, suffix = _place_of(out, _FILES)
    require_place(url)

    def write(columns: Mapping[str, np.ndarray]) -> int:
        with whole_file(url, sum(column.nbytes for column in columns.values())) as path:
            _FILES[suffix](path, columns)
        return len(next(iter(columns.values())))

    return write


def predictions_writer(out: str) -> Callable[..., None]:
    """Return what writes predictions to a path or URL, with decision values and probabilities; whether it can be written is asked now."""
    url, suffix = _place_of(out, _ENDINGS)
    if suffix == ".zarr":
        holds_store(url)
        return partial(_write_zarr, url)
    require_place(url)

    def write(labels: np.ndarray | None, values: np.ndarray, probabilities: Probabilities | None = None) -> None:
        with whole_file(url, values.nbytes) as path:
            is_arrays = labels is not None and suffix == ".npz"
            arrays = {} if probabilities is None else {"classes": probabilities.labels, "probability": probabilities.values}
            arrays = {"prediction": np.asarray(labels), "decision": values, **arrays}
            _FILES[suffix](path, arrays if is_arrays else _table(labels, values, probabilities))

    return write


def score_store(
    run: str,
    store: str,
    *,
    cluster: str = "sync",
    allow_plaintext: bool = False,
    on_event: Emit | None = None,
    dry_run: bool = False,
    **where: Any,
) -> dict[str, Any]:
    """Return the metric table of a run on a store.

    Of classes accuracy, and precision, recall and F1 per class, area under the curve for two, log-loss and Brier score where the model
    has probabilities; of a regression R2 and errors. Beside them 95 % intervals from a fixed bootstrap, and what always answering the
    commonest class (``majority``), or the mean, would get.
    Of many tasks also the mean over tasks and a row per task; the other figures are of all rows together.
    ``rows_are`` tells which rows they are: on the training store of a run with ``test_share`` the held-out ones. What reports draw (the
    confusion of classes, curves, calibration, predictions) stands in further tables. With ``dry_run`` the plan, as of
    :func:`predict_store`. Raises MemoryBoundExceeded: this process would hold more than ``driver_memory``.
    """
    options = ComputeOptions(cluster, allow_plaintext=allow_plaintext, **where)
    if dry_run:
        return _planned(run, store, None, options, on_event or ignore)
    estimator, data, values = _decide(run, store, options, on_event or ignore)
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
        return {**which, **_score_numbers(run, estimator, data, values[:, 0], rows)}
    truth, (rows, which) = _truth(estimator, data), _scored_rows(record, data)
    neither = {}
    if hasattr(estimator, "predict_three_way"):
        # Rows of neither class, and the accuracy over all three labels; the other figures are of rows of two classes.
        predicted = np.where(_is_neither(estimator, values), -1, values[:, 0] > 0)
        three_way = float(np.mean((predicted == truth)[rows]))
        neither, rows = {"rows_of_neither": int(np.sum(rows & (truth < 0))), "three_way_accuracy": three_way}, rows & (truth >= 0)
        if not rows.any():
            raise DataError("no row is labelled with one of the two classes, there is nothing to score", data.url)
    calibration = known_of(estimator, _folder_of(run))
    chances = None if calibration is None else class_probabilities(calibration, values[rows])
    table = {**which, "rows": int(rows.sum()), **_metrics(truth[rows], values[rows], estimator.classes_)}
    table |= evaluate_classes(truth[rows], values[rows], estimator.classes_.tolist(), chances)
    table |= {} if chances is None else _probability_metrics(truth[rows], chances)
    if _by_task(estimator.model_):
        table |= task_accuracies(*_tasks(estimator.model_, data, rows), truth[rows], values[rows])
    return {**table, **neither, "path": _path(estimator, data, truth, rows, options)}


def _score_numbers(run: str, estimator: MethodEstimator, data: BlockStore, values: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
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
    """Return the tasks of the scored rows, and the names."""
    return store_codes(model, data)[rows], model.tasks or ()


def _path(estimator: MethodEstimator, data: BlockStore, truth: np.ndarray, rows: np.ndarray, where: ComputeOptions) -> list[dict[str, Any]]:
    """Return the accuracy of the model after every round."""
    with one_thread(), open_executor(where.config()) as executor:
        ctx = RunContext(executor, data, driver_memory=driver_bytes(where.driver_memory))
        along = predictor_of(estimator).staged_decision_values(estimator.model_, ctx)
    return [{"n_selected": count, "accuracy": float(np.mean(predicted_codes(values[rows].T) == truth[rows]))} for count, values in along]


def _truth(estimator: MethodEstimator, data: BlockStore) -> np.ndarray:
    if not data.has_table("y"):
        raise DataError("there is no target, so nothing to compare predictions with; predict works without one", data.url)
    if data.meta.labels is None:
        raise DataError("the target is real-valued; ingest the file with --like TRAINING_STORE", data.url)
    known = {json.dumps(label): code for code, label in enumerate(estimator.classes_.tolist())}
    codes = np.array([known.get(json.dumps(label), -1) for label in data.meta.labels])
    return codes[data.target().astype(np.int64)]


def _scored_rows(record: Mapping[str, Any], data: BlockStore) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the mask of the rows that are scored, and which they are."""
    mask, which = None, OTHER_ROWS
    if data.digest == record["data_digest"]:
        mask = held_out_rows(record["extra"], data.target(), int(record["seed"]), data.meta.labels)
        which = TRAINING_ROWS if mask is None else HELD_OUT_ROWS
    return np.ones(data.n_rows, dtype=bool) if mask is None else mask, {"rows_are": which, "data_digest": data.digest}


def _probability_metrics(truth: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """Return log-loss and Brier score over the rows of known classes."""
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
