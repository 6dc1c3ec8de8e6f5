"""Writes recommendations and labels of a run for its own users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...cluster import driver_bytes, open_executor
from ...kernels.jit import one_thread
from ...storage import BlockStore, DataError, RunStore
from ...storage.temporary import temporary_folder
from ..core.memory import Memory, driver_plan, process_bytes, process_plan, refuse, refuse_step, total_bytes
from ..core.resources import Emit, Resources, ignore
from ..methods.social_strength.model import SocialModel
from ..methods.social_strength.recommend import Recommendation, labelled, recommended, use_items
from ..records.compute import ComputeOptions
from ..records.csv_texts import CsvTexts
from .load import load_model
from .predict_planning import model_item, planned_pass, step_bytes
from .predictions import Predicted, Predictions, predictions_writer, refuse_foreign, table_writer
from .run import method_named, open_data


@dataclass(frozen=True)
class _Use:
    """A model, its users, and the requested output."""

    model: SocialModel
    data: BlockStore
    asked: Recommendation | None
    labels: Sequence[str]

    def __call__(self, resources: Resources) -> Any:
        if self.asked is not None:
            return recommended(self.model, self.data, resources, self.asked)
        return labelled(self.model, self.data, resources, self.labels)


def _open_run(run: str, store: str, asked: Recommendation | None, labels: Sequence[str]) -> _Use:
    record, estimator = RunStore.open(run).config, load_model(run)
    if not isinstance(estimator.model_, SocialModel):
        raise ValueError(
            f"{run}: {type(estimator).__name__} ranks no candidates; recommendations and labels of users need a fit of social-strength"
        )
    data: BlockStore = open_data(store, method_named(record["method"]))
    if data.digest != record["data_digest"]:
        raise DataError("these are not the users of the fit; recommendations and labels need the store that the run was fitted on", store)
    return _Use(estimator.model_, data, asked, labels)


def _checked_plan(use: _Use, options: ComputeOptions, limit: int, emit: Emit) -> dict[str, Any]:
    """Return the number of tasks and the memory of a request. Raises MemoryBoundExceeded if this process or a task would exceed its
    limit.
    """
    n_labels = len({text.strip() for text in use.labels} - {""})
    items = (model_item(use.model), *use_items(use.model, use.asked, n_labels))
    refuse("predict", items, limit, "fewer users" if use.asked is None else "fewer candidates")
    work, config = planned_pass(use, limit, emit) if use.model.by_blocks else None, options.config()
    step = step_bytes(work)
    refuse_step("predict", Memory(items, step), limit, config.kind)
    passes = {"tasks_per_pass": 0 if work is None else work.n_tasks, "task_bytes": step}
    at_most = {"cluster": options.cluster, "process_bytes_at_most": process_bytes(config, step)}
    process = process_plan(total_bytes(items), step, use.data, limit, config.kind)
    return {**at_most, **passes, **driver_plan(items), **process}


def use_store(
    run: str,
    store: str,
    out: str,
    *,
    recommend: int | None = None,
    members: Sequence[Sequence[Any]] | None = None,
    labels: Sequence[str] | None = None,
    group_score: str = "decision",
    replace: bool = False,
    excel_safe: bool = False,
    dry_run: bool = False,
    on_event: Emit | None = None,
    **where: Any,
) -> dict[str, Any]:
    """Write recommendations or labels of a run of ``social-strength`` for its users.

    ``recommend``: number of candidates per user. Candidates are other users. If ``members`` is given, with a row for each group and user in
    it, candidates are groups. Groups are ranked by the sum of f over their members, or with ``group_score="strength"`` by the sum of the
    strengths. The table has columns ``user, rank, candidate`` (or ``group``), ``decision`` and ``strength``, and is written to .npz, .csv
    or .parquet. ``labels``: a label for every user, empty if unknown; the labels of all users are written as predictions.

    Returns ``rows`` and ``out``, or with ``dry_run`` the plan. Raises ValueError if neither or both of ``recommend`` and ``labels`` are
    given, or a number is below 1; DataError if the store has other users than the fit; MemoryBoundExceeded.
    """
    if (recommend is None) == (labels is None):
        raise ValueError("recommend, labels: give exactly one of the two")
    if recommend is not None and recommend < 1:
        raise ValueError(f"recommend={recommend}: must be at least 1")
    asked = None if recommend is None else Recommendation(recommend, members, group_score == "strength")
    options, emit = ComputeOptions(**where), on_event or ignore
    texts = CsvTexts(excel_safe, lambda message: emit({"event": "warning", "message": message}))
    write = table_writer(out, texts) if asked is not None else partial(_write_labels, predictions_writer(out, texts), store)
    refuse_foreign(out, None if replace else Predictions.__name__)
    use, limit = _open_run(run, store, asked, labels or ()), driver_bytes(options.driver_memory)
    if labels is not None and len(labels) != use.data.n_rows:
        raise ValueError(f"labels has {len(labels)} entries, but {store} has {use.data.n_rows} users")
    plan = _checked_plan(use, options, limit, emit)
    if dry_run:
        return {"run": run, "data": store, "out": out, "rows": use.data.n_rows, **plan}
    with one_thread(), open_executor(options.config(), events=emit) as executor, temporary_folder() as folder:
        # What tasks share lies in a run of its own, removed at exit.
        shared = None if executor.kind == "sync" else RunStore.create(folder / "run", {})
        result = use(Resources(executor, scratch=shared, driver_memory=limit, emit=emit))
        use.data.confirm()
    return {"rows": write(result), "out": out}


def _write_labels(write: Callable[[Predicted], object], store: str, result: tuple[np.ndarray, np.ndarray]) -> int:
    write(Predicted(BlockStore.open(store).ids(), *result))
    return len(result[0])
