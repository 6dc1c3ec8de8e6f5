"""Loads the fitted estimator of a finished run. Missing calibrations are computed from its store and kept in the run directory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...cluster import open_executor
from ...kernels.jit import one_thread
from ...storage import BlockStore, DataError, DigestMismatch, RunStore, StorageError, read_model, write_model
from ...storage.encoding.record import first_difference
from ...storage.errors import Json
from ...storage.records import record_name
from ...storage.runs.models import model_class
from ..core.calibration import Fit, calibrate_run, fold_plan, known_calibration
from ..core.resources import Emit, RunContext, ignore
from ..estimators.base import Estimator, has_probabilities
from ..estimators.kernels import MappedRows
from ..estimators.probabilities import LateModel
from ..models.calibration import Calibration
from ..models.kernel import KernelModel
from ..models.row_map import fit_kernel_map
from ..models.spectral import SpectralModel
from ..records.compute import ComputeOptions
from ..records.config import make_config
from ..registry import MethodInfo
from .data import training_store
from .run import executing, method_named

KEPT = "calibration"  # folder of a run with a calibration that was made after its fit
KEPT_MAP = "row-map"  # and with a map of unseen rows
M = TypeVar("M")
REMEDY = "fit again with probability='sigmoid' (--set probability=sigmoid), which keeps the calibration with the model"


def load_model(run: str | Path) -> Any:
    """Return the fitted estimator of a finished run. Raises StorageError if the run is unfinished or damaged.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, load_model, run_method
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> outcome = run_method(
    ...     "fgm", {"B": 2, "max_rounds": 2}, data="stores/iris", run="runs/iris"
    ... )
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
        loaded._late = LateModel(partial(calibration_of, str(folder.path)))
    if isinstance(loaded, MappedRows):
        loaded._row_map = LateModel(partial(row_map_of, str(folder.path)))
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
    return known_calibration(type(estimator)._method, estimator.model_) or _kept(run / KEPT, Calibration)


def _kept(place: Path, kind: type[M]) -> M | None:
    return read_model(place, kind) if model_class(place) == record_name(kind) else None


def calibration_of(run: str, where: ComputeOptions | None = None, emit: Emit = ignore) -> Calibration:
    """Return the calibration of a finished run, computed from its training store, and keep it for later calls.

    Raises DigestMismatch if the store has changed.
    """
    return _made_later(run, KEPT, Calibration, calibrate_run, where or ComputeOptions(), emit)


def row_map_of(run: str, where: ComputeOptions | None = None, emit: Emit = ignore) -> KernelModel:
    """Return the map of unseen rows of a finished run, fitted on its training store, and keep it for later calls.

    Raises as :func:`calibration_of` and :func:`fit_kernel_map` do.
    """
    return _made_later(run, KEPT_MAP, KernelModel, partial(_fit_row_map, run), where or ComputeOptions(), emit)


def _fit_row_map(run: str, fit: Fit, ctx: RunContext, *, plan: bool = False) -> KernelModel:
    learnt = RunStore.open(run).read_model(SpectralModel)
    return fit_kernel_map(fit.method.name, fit.config, learnt, ctx.data, ctx, plan=plan)


def _made_later(run: str, name: str, kind: type[M], make: Callable[[Fit, RunContext], M], where: ComputeOptions, emit: Emit) -> M:
    """Return what a finished run keeps under a name. If it is missing, make it from the training store and keep it."""
    folder = RunStore.open(run)
    with folder.lock(), _kept_place(folder, name) as place:
        kept = _kept(folder.path / name, kind)
        if kept is not None:
            return kept
        info, record = method_named(folder.config["method"]), folder.config
        data = _data_of(folder, info)
        with executing(where, data, emit, info.method.programs) as executor:
            memory, seed = int(record["driver_memory"]), int(record["seed"])
            ctx = RunContext(executor, data=data, scratch=folder if place else None, driver_memory=memory, emit=emit, seed=seed)
            made = make(_fit(folder, info, ctx), ctx)
            ctx.confirm()
        if place is not None:
            write_model(place, made)
            folder.drop_scratch()
    return made


def calibration_plan(run: Path) -> dict[str, Any]:
    """Return the plan of the calibration of a finished run that has none. Nothing is computed."""
    with _planning(run) as (fit, ctx):
        folds = fit.folds(ctx.seed)
        plan = fold_plan(fit, ctx, folds)
    return {"calibration": folds.cost, "calibration_driver_bytes": plan["driver_bytes"], "calibration_task_bytes": plan["task_bytes"]}


def row_map_plan(run: Path) -> KernelModel:
    """Return a model of the size of the map of unseen rows of a finished run. Nothing is fitted; raises as :func:`row_map_of` does."""
    with _planning(run) as (fit, ctx):
        return _fit_row_map(str(run), fit, ctx, plan=True)


@contextlib.contextmanager
def _planning(run: Path) -> Iterator[tuple[Fit, RunContext]]:
    folder = RunStore.open(run)
    info, record = method_named(folder.config["method"]), folder.config
    with one_thread(), open_executor(None) as executor:
        ctx = RunContext(
            executor, data=_data_of(folder, info), driver_memory=int(record["driver_memory"]), emit=ignore, seed=int(record["seed"])
        )
        yield _fit(folder, info, ctx), ctx


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
def _kept_place(folder: RunStore, name: str) -> Iterator[Path | None]:
    """Yield the folder for what is kept under a name, or ``None`` if the run directory is not writable."""
    try:
        folder.scratch.mkdir(exist_ok=True)
    except OSError:
        yield None
    else:
        yield folder.path / name
