"""What each kind of workflow step reads, does and leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..pipeline.registry import extra_inputs
from ..storage.places import is_local
from .commands.actions import existing, extras_of, ingest_source, plan_source, tune_plan
from .commands.gram_actions import build_store, open_store
from .commands.options import Where, explicit, method_config
from .kernel_files import POLICIES, names_file
from .progress import Sink
from .schema import GramStep, IngestArgs, IngestStep, Workflow, model_steps, step_store


@dataclass(frozen=True)
class Place:
    """Where the steps of one run of a workflow work.

    Attributes
    ----------
    read
        The workflow.
    folder
        Folder of this run; every step has a folder of its name in it.
    where
        Cluster and memory.
    sink
        Takes progress events.
    written
        Outputs of an earlier try of the step at work, which it may replace.
    """

    read: Workflow
    folder: Path
    where: Where
    sink: Sink
    written: frozenset[str] = frozenset()

    def own(self, step: str) -> Path:
        """Return a step's folder; of a fit or tune step it is the run directory."""
        return self.folder / step

    def store(self, step: Any) -> str:
        """Return the store a step works on."""
        return self.read.path(step_store(self.read.spec, step) or "")

    def models(self, step: Any) -> list[Path]:
        """Return the run directories whose models a step uses."""
        from .report.collect import fitted

        return [Path(fitted(run)) for run in self.runs(step)]

    def runs(self, step: Any) -> list[Path]:
        """Return the folders of the fit and tune steps whose models a step uses."""
        return [self.own(name) for name in model_steps(self.read.spec, step)]


class Done(NamedTuple):
    """What a step left: figures for the reader, and the digests of its outputs by path."""

    figures: Mapping[str, Any]
    outputs: Mapping[str, str]


class Action(NamedTuple):
    """A kind of step: digests of what it reads (by path), the work, and its plan of tasks and memory, where there is one."""

    inputs: Callable[[Place, Any], dict[str, str]]
    work: Callable[[Place, Any], Done]
    plan: Callable[[Place, Any], dict[str, Any]] | None = None


def fingerprint(path: str) -> str:
    """Return size and time of a source file: like make, a source counts as changed when it was written again; of an object its mark."""
    if not is_local(path):
        from ..storage.urls import object_mark

        return object_mark(path)
    stat = Path(existing(path, "source")).stat()
    return f"{stat.st_size}-{stat.st_mtime_ns}"


def source_of(read: Workflow, step: IngestStep) -> str:
    """Return the source of an ingest step as an absolute path."""
    return read.path(step.args.source)


def _digests(*paths: str | Path) -> dict[str, str]:
    from ..storage import digest_of

    return {str(path): digest_of(path) for path in paths}


def _files(place: Place, step: Any, *keys: str) -> list[str]:
    """Return the paths a step's arguments name, as far as they are given."""
    return [place.read.path(getattr(step.args, key)) for key in keys if getattr(step.args, key) is not None]


def _ingest_inputs(place: Place, step: IngestStep) -> dict[str, str]:
    source = source_of(place.read, step)
    return {source: fingerprint(source), **_digests(*_files(place, step, "like", "groups", "names"))}


def _ingest_args(place: Place, step: IngestStep) -> IngestArgs:
    read, args = place.read, step.args
    moved = {key: read.path(value) for key in ("like", "groups", "names") if (value := getattr(args, key)) is not None}
    return args.model_copy(update={"source": source_of(read, step), **moved})


def _ingest(place: Place, step: IngestStep) -> Done:
    store = place.store(step)
    return Done(ingest_source(_ingest_args(place, step), store, place.sink), _digests(store))


def _ingest_plan(place: Place, step: IngestStep) -> dict[str, Any]:
    return plan_source(_ingest_args(place, step), place.store(step))


def gram_kernels(read: Workflow, step: GramStep) -> str | list[Any]:
    """Return the kernels of a gram step: its list, or its file or texts."""
    given = step.args.kernels
    return read.path(given) if isinstance(given, str) and names_file(read.path(given)) else given


def _gram_inputs(place: Place, step: GramStep) -> dict[str, str]:
    kernels = gram_kernels(place.read, step)
    file = [kernels] if isinstance(kernels, str) and names_file(kernels) else []
    return _digests(existing(place.store(step), "store"), *file)


def _gram(place: Place, step: GramStep) -> Done:
    out = place.read.path(step.args.out)
    kernels, overwrite = gram_kernels(place.read, step), step.args.overwrite
    _, figures = build_store(place.store(step), kernels, out, place.where, place.sink, overwrite=overwrite)
    return Done(figures, _digests(out))


def _gram_plan(place: Place, step: GramStep) -> dict[str, Any]:
    out, kernels = place.read.path(step.args.out), gram_kernels(place.read, step)
    return build_store(place.store(step), kernels, out, place.where, place.sink, True)[1]


def _fit_inputs(place: Place, step: Any) -> dict[str, str]:
    file = kernel_file(place.read, step)
    return _digests(
        existing(place.store(step), "store"),
        *_files(place, step, "groups", *extra_inputs()),
        *([] if file is None else [file]),
    )


def _fitted(place: Place, step: Any, outcome: Any) -> Done:
    from .report.collect import fitted

    return Done(outcome.summary, _digests(Path(fitted(place.own(step.id))) / "model"))


def _training(place: Place, step: Any) -> dict[str, Any]:
    """Return the arguments that fits and searches of a step have in common."""
    return {
        "data": place.store(step),
        "run": str(place.own(step.id)),
        "seed": step.args.seed,
        "extra": extras_of(step.args, place.store(step), place.read.path),
        "on_event": place.sink,
        **place.where.arguments(),
    }


def _fit(place: Place, step: Any) -> Done:
    from ..pipeline import run_method

    outcome = run_method(step.args.method, fit_params(place.read, step), **_training(place, step))
    return _fitted(place, step, outcome)


def fit_params(read: Workflow, step: Any) -> dict[str, Any]:
    """Return the method's parameters of a fit step, coerced to their types, checked already; paths absolute."""
    from ..storage import BlockStore

    values, store = step_values(read, step), read.path(step_store(read.spec, step) or "")
    return explicit(method_config(step.args.method, values, d=BlockStore.open(store).meta.n_cols if "kernels" in values else None))


def step_values(read: Workflow, step: Any) -> dict[str, Any]:
    """Return the parameters of a fit or tune step as written, paths absolute."""
    values = step.args.params()
    paths = {key: read.path(values[key]) for key in ("gram_store", "grams") if isinstance(values.get(key), str)}
    if values.get("grams") in POLICIES:
        paths.pop("grams")
    file = kernel_file(read, step)
    return {**values, **paths, **({} if file is None else {"kernels": file})}


def kernel_file(read: Workflow, step: Any) -> str | None:
    """Return the file a fit or tune step takes its kernels from, if there is one."""
    given = step.args.params().get("kernels")
    return read.path(given) if isinstance(given, str) and names_file(read.path(given)) else None


def _fit_plan(place: Place, step: Any) -> dict[str, Any]:
    from ..pipeline import run_method

    return run_method(step.args.method, fit_params(place.read, step), dry_run=True, **_training(place, step)).plan or {}


def _tune(place: Place, step: Any) -> Done:
    from ..pipeline import tune

    given = {"params": fit_params(place.read, step), "folds": step.args.folds, **_training(place, step)}
    return _fitted(place, step, tune(step.args.method, step.args.grid, **given))


def _tune_plan(place: Place, step: Any) -> dict[str, Any]:
    return tune_plan(step.args.method, fit_params(place.read, step), step.args.grid, step.args.folds, _training(place, step))


def _use_inputs(place: Place, step: Any) -> dict[str, str]:
    return _digests(existing(place.store(step), "store"), *(run / "model" for run in place.models(step)))


def _predict(place: Place, step: Any) -> Done:
    from ..pipeline import predict_store

    (run,), out = place.models(step), place.read.path(step.args.out)
    if is_local(out):
        Path(out).parent.mkdir(parents=True, exist_ok=True)
    return Done(predict_store(str(run), place.store(step), out, **_predicting(place, step, out)), _digests(out))


def _predicting(place: Place, step: Any, out: str) -> dict[str, Any]:
    return {"three_way": step.args.three_way, "replace": out in place.written, "on_event": place.sink, **place.where.arguments()}


def _predict_plan(place: Place, step: Any) -> dict[str, Any]:
    from ..pipeline import predict_store

    (run,), out = place.models(step), place.read.path(step.args.out)
    return predict_store(str(run), place.store(step), out, dry_run=True, **_predicting(place, step, out))


def _score(place: Place, step: Any) -> Done:
    from ..pipeline import score_store
    from .report.collect import save_score, write_json

    (run,) = place.models(step)
    found = score_store(str(run), place.store(step), on_event=place.sink, **place.where.arguments())
    save_score(run, place.store(step), found)
    return Done(found, _digests(write_json(place.own(step.id) / "score.json", found)))


def _score_plan(place: Place, step: Any) -> dict[str, Any]:
    from ..pipeline import score_store

    (run,) = place.models(step)
    return score_store(str(run), place.store(step), on_event=place.sink, dry_run=True, **place.where.arguments())


def _report_inputs(place: Place, step: Any) -> dict[str, str]:
    runs = place.models(step)
    scores = [run / "scores.json" for run in runs if (run / "scores.json").exists()]
    return _digests(*(run / "model" for run in runs), *scores)


def _report(place: Place, step: Any) -> Done:
    from .report import write_report

    out = place.read.path(step.args.out) if step.args.out else place.own(step.id)
    names = model_steps(place.read.spec, step)
    written = write_report(place.runs(step), out, names if len(names) > 1 else [f"{place.read.spec.name}: {names[0]}"], place.written)
    return Done({"report": str(written.page)}, _digests(written.page, *written.tables))


def _verify_inputs(place: Place, step: Any) -> dict[str, str]:
    # The time makes every run another one: what was sound yesterday says nothing about today.
    import time

    return {place.store(step): str(time.time_ns())}


def _verify(place: Place, step: Any) -> Done:
    from ..storage import DigestMismatch

    report = open_store(existing(place.store(step), "store")).verify()
    if not report.ok:
        listed = "; ".join(item.reason for item in report.damaged[:5])
        raise DigestMismatch(f"{place.store(step)}: {len(report.damaged)} of {report.n_objects} objects damaged: {listed}")
    return Done({"objects": report.n_objects, "bytes": report.nbytes}, {})


ACTIONS: dict[str, Action] = {
    "ingest": Action(_ingest_inputs, _ingest, _ingest_plan),
    "gram": Action(_gram_inputs, _gram, _gram_plan),
    "fit": Action(_fit_inputs, _fit, _fit_plan),
    "tune": Action(_fit_inputs, _tune, _tune_plan),
    "predict": Action(_use_inputs, _predict, _predict_plan),
    "score": Action(_use_inputs, _score, _score_plan),
    "report": Action(_report_inputs, _report),
    "verify": Action(_verify_inputs, _verify),
}
