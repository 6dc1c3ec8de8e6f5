"""Loads the fitted estimator of a finished run. Missing calibrations are computed from its store and kept in the run directory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ...cluster import open_executor
from ...kernels.jit import one_thread
from ...storage import BlockStore, DataError, DigestMismatch, RunStore, StorageError, read_model, write_model
from ...storage.encoding.record import first_difference
from ...storage.errors import Json
from ...storage.runs.models import model_class
from ..core.calibration import Fit, calibrate_run, fold_plan, known_calibration
from ..core.resources import Emit, RunContext, ignore
from ..estimators.base import Estimator, has_probabilities
from ..estimators.probabilities import LateCalibration
from ..models.calibration import Calibration
from ..records.compute import ComputeOptions
from ..records.config import make_config
from ..registry import MethodInfo
from .data import training_store
from .run import executing, method_named

KEPT = "calibration"  # folder of a run with a calibration that was made after its fit
REMEDY = "fit again with probability='sigmoid' (--set probability=sigmoid), which keeps the calibration with the model"


def load_model(run: str | Path) -> Any:
    """Return the fitted estimator of a finished run. Raises StorageError if the run is unfinished or damaged.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, load_model, run_method
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> outcome = run_method("fgm", {"B": 2, "max_rounds": 2}, data="stores/iris", run="runs/iris")
    >>> load_model("runs/iris").predict(load_iris().data[:3])
    array([0, 0, 0])
    """
    folder = RunStore.open(str(run))
    record = folder.config
    if "tune" in record:
        return load_model(folder.path / "best")
    summary: Json = folder.read_json("summary")
    if summary is None:
        raise StorageError(f"{run}: the run is not finished, it has no model yet; continue it with `gramplane resume {run}`")
    info = method_named(record["method"])
    model = folder.read_model(info.method.models)
    regression = info.regressor is not None and getattr(model, "classes_json", "") == "null"
    estimator = getattr(info.module("estimator"), str(info.regressor if regression else info.estimator))
    loaded: Any = estimator.from_model(model, record["params"], folder.history())
    loaded._set_stop(summary.get("stop"))
    source = folder.read_source()
    loaded._first_feature = source.first_index
    loaded._source_columns = source.table
    if has_probabilities(loaded) and known_calibration(info.method, model) is None:
        loaded._late = LateCalibration(partial(calibration_of, str(folder.path)))
    return loaded


def check_encoding(run: Path, data: BlockStore) -> None:
    """Check that a store encodes the columns of its table in the same way as the training data of a run.

    Raises DataError with the first difference.
    """
    fitted, given = RunStore.open(str(run)).read_source().table, data.table
    differs = first_difference(fitted, given) if fitted is not None and given is not None else None
    if differs is not None:
        raise DataError(f"its features are not those of the fit: {differs}; ingest the source with --like TRAINING_STORE", data.url)


def known_of(estimator: Estimator, run: Path) -> Calibration | None:
    """Return the calibration of a run's model if it is known without further fits, otherwise ``None``."""
    if not has_probabilities(estimator):
        return None
    return known_calibration(type(estimator)._method, estimator.model_) or _kept(run)


def _kept(run: Path) -> Calibration | None:
    return read_model(run / KEPT, Calibration) if model_class(run / KEPT) == Calibration.record_name else None


def calibration_of(run: str, where: ComputeOptions | None = None, emit: Emit = ignore) -> Calibration:
    """Return the calibration of a finished run, computed from its training store, and keep it for later calls.

    Raises DigestMismatch if the store has changed.
    """
    folder = RunStore.open(run)
    with folder.lock(), _kept_place(folder) as place:
        kept = _kept(folder.path)
        if kept is not None:
            return kept
        info, record = method_named(folder.config["method"]), folder.config
        data = _data_of(folder, info)
        with executing(where or ComputeOptions(), data, emit, info.method.programs) as executor:
            memory, seed = int(record["driver_memory"]), int(record["seed"])
            ctx = RunContext(executor, data=data, scratch=folder if place else None, driver_memory=memory, emit=emit, seed=seed)
            calibration = calibrate_run(_fit(folder, info, ctx), ctx)
            ctx.confirm()
        if place is not None:
            write_model(place, calibration)
            folder.drop_scratch()
    return calibration


def calibration_plan(run: Path) -> dict[str, Any]:
    """Return the plan of the calibration of a finished run that has none. Nothing is computed."""
    folder = RunStore.open(run)
    info, record = method_named(folder.config["method"]), folder.config
    with one_thread(), open_executor(None) as executor:
        ctx = RunContext(
            executor, data=_data_of(folder, info), driver_memory=int(record["driver_memory"]), emit=ignore, seed=int(record["seed"])
        )
        fit = _fit(folder, info, ctx)
        folds = fit.folds(ctx.seed)
        plan = fold_plan(fit, ctx, folds)
    return {"calibration": folds.cost, "calibration_driver_bytes": plan["driver_bytes"], "calibration_task_bytes": plan["task_bytes"]}


def _fit(folder: RunStore, info: MethodInfo, ctx: RunContext) -> Fit:
    record = folder.config
    config = make_config(info.config, record["params"]).model_copy(update=record.get("decided", {}))
    return Fit(info.method, *info.method.read_inputs(config, ctx, record["extra"]))


def _data_of(folder: RunStore, info: MethodInfo) -> Any:
    if folder.config["extra"].get("stream") is not None:
        raise ValueError(f"{folder.path}: the run read a stream, whose rows are gone, so probabilities cannot be calibrated; {REMEDY}")
    try:
        return training_store(folder, info)
    except StorageError as error:
        raise DigestMismatch(f"probabilities are calibrated from the store that the run was fitted on: {error}; {REMEDY}") from error


@contextlib.contextmanager
def _kept_place(folder: RunStore) -> Iterator[Path | None]:
    """Yield the folder for a calibration, or ``None`` if the run directory is not writable."""
    try:
        folder.scratch.mkdir(exist_ok=True)
    except OSError:
        yield None
    else:
        yield folder.path / KEPT
