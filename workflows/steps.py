"""Inputs, action and outputs of each kind of workflow step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..storage.places import is_local
from .checking import CheckFailed
from .commands.actions import answer_users, collect_extras, ingest_source, plan_source, require_path, tune_plan, user_questions
from .commands.gram import build_store, open_store
from .commands.options import ComputeOptions, explicit_values, method_config
from .console import Emit, format_figure
from .kernel_files import names_file
from .schema import (
    CheckStep,
    FitStep,
    GramStep,
    IngestStep,
    PredictStep,
    ReportStep,
    ScoreStep,
    StabilityStep,
    Step,
    TuneStep,
    VerifyStep,
    Workflow,
    meets,
)

if TYPE_CHECKING:
    from ..pipeline.runs.run import RunOutcome


@dataclass(frozen=True)
class StepContext:
    """The context of the steps of one run. Every step has a subfolder of ``folder`` with its name.

    ``written``: outputs of an earlier attempt of the current step; the step may replace them.
    """

    read: Workflow
    folder: Path
    compute: ComputeOptions
    emit: Emit
    written: frozenset[str] = frozenset()

    def step_folder(self, step: str) -> Path:
        """Return a step's folder; for a fit or tune step it is the run directory."""
        return self.folder / step

    def store(self, step: Step) -> str:
        return self.read.path(self.read.spec.step_store(step) or "")

    def models(self, step: Step) -> list[Path]:
        """Return the run directories of the models that a step uses."""
        from .report.collect import model_run

        return [Path(model_run(run)) for run in self.runs(step)]

    def runs(self, step: Step) -> list[Path]:
        """Return the folders of the fit and tune steps whose models a step uses."""
        return [self.step_folder(name) for name in self.read.spec.model_steps(step)]


class StepResult(NamedTuple):
    """The results of a finished step, and the digests of its outputs by path."""

    figures: Mapping[str, Any]
    outputs: Mapping[str, str]


class Action(NamedTuple):
    """What a kind of step does. ``inputs(context, step)`` returns the digests of the inputs by path; ``work(context, step)`` runs the step.

    If ``has_plan``, ``work`` with ``dry_run=True`` returns a result whose ``figures`` are the plan of tasks and memory.
    """

    inputs: Callable[[StepContext, Any], dict[str, str]]
    work: Callable[..., StepResult]
    has_plan: bool = True


def source_mark(path: str) -> str:
    """Return size and modification time of a source file. As in make, a file that was written again counts as changed. For a URL, see
    `object_mark`.
    """
    if not is_local(path):
        from ..storage.urls import object_mark

        return object_mark(path)
    place = Path(require_path(path, "source"))
    if place.is_dir():
        files = (file for file in sorted(place.rglob("*")) if file.is_file())
        return " ".join(f"{file.relative_to(place)} {source_mark(str(file))}" for file in files)
    beside = [place.with_suffix(ending) for ending in (".bim", ".fam")] if place.suffix == ".bed" else []
    if beside:
        return " ".join(source_mark(str(file)) for file in beside) + f" {place.stat().st_size}-{place.stat().st_mtime_ns}"
    stat = place.stat()
    return f"{stat.st_size}-{stat.st_mtime_ns}"


def source_of(read: Workflow, step: IngestStep) -> str:
    return read.path(step.args.source)


def _digest_paths(*paths: str | Path) -> dict[str, str]:
    from ..storage import digest_of

    return {str(path): digest_of(path) for path in paths}


def _named_files(context: StepContext, step: Step, *keys: str) -> dict[str, str]:
    """Return the paths in the given arguments of a step. (Names of genes may be a column of the source.)"""
    given = {key: value for key in keys if (value := getattr(step.args, key)) is not None}
    return {key: context.read.path(value) for key, value in given.items() if key != "names" or not value.startswith("var:")}


_FILES = ("like", "groups", "names", "keep", "extract")  # arguments of an ingest that name one place


def _ingest_inputs(context: StepContext, step: IngestStep) -> dict[str, str]:
    source = source_of(context.read, step)
    joined = map(context.read.path, step.args.join or ())
    return {source: source_mark(source), **_digest_paths(*_named_files(context, step, *_FILES).values(), *joined)}


def _ingest(context: StepContext, step: IngestStep, dry_run: bool = False) -> StepResult:
    read, store = context.read, context.store(step)
    moved: dict[str, Any] = dict(_named_files(context, step, *_FILES))
    moved["join"] = None if step.args.join is None else [read.path(file) for file in step.args.join]
    args = step.args.model_copy(update={"source": source_of(read, step), **moved})
    if dry_run:
        return StepResult(plan_source(args, store), {})
    return StepResult(ingest_source(args, store, context.emit), _digest_paths(store))


def gram_kernels(read: Workflow, step: GramStep) -> str | list[Any]:
    """Return the kernels of a gram step: a list, a file or expressions."""
    kernels = step.args.kernels
    return read.path(kernels) if isinstance(kernels, str) and names_file(read.path(kernels)) else kernels


def _gram_inputs(context: StepContext, step: GramStep) -> dict[str, str]:
    kernels = gram_kernels(context.read, step)
    file = [kernels] if isinstance(kernels, str) and names_file(kernels) else []
    return _digest_paths(require_path(context.store(step), "store"), *file)


def _gram(context: StepContext, step: GramStep, dry_run: bool = False) -> StepResult:
    out, kernels = context.read.path(step.args.out), gram_kernels(context.read, step)
    overwrite = step.args.overwrite and not dry_run
    _, figures = build_store(context.store(step), kernels, out, context.compute, context.emit, dry_run, overwrite, step.args.scale)
    return StepResult(figures, {} if dry_run else _digest_paths(out))


def kernel_file(read: Workflow, step: FitStep | TuneStep) -> str | None:
    """Return the kernel file of a fit or tune step, if there is one."""
    kernels = step.args.params().get("kernels")
    return read.path(kernels) if isinstance(kernels, str) and names_file(read.path(kernels)) else None


def step_values(read: Workflow, step: FitStep | TuneStep) -> dict[str, Any]:
    """Return the parameters of a fit or tune step as written, with absolute paths."""
    values = step.args.params()
    store, file = values.get("gram_store"), kernel_file(read, step)
    changed = {"gram_store": read.path(store) if isinstance(store, str) else None, "kernels": file}
    return {**values, **{name: path for name, path in changed.items() if path is not None}}


def fit_params(read: Workflow, step: FitStep | TuneStep) -> dict[str, Any]:
    """Return the checked parameters of a fit step, converted to their types, with absolute paths."""
    from ..storage import BlockStore

    values, store = step_values(read, step), read.path(read.spec.step_store(step) or "")
    return explicit_values(method_config(step.args.method, values, d=BlockStore.open(store).meta.n_cols if "kernels" in values else None))


def fit_files(read: Workflow, step: FitStep | TuneStep) -> list[str]:
    """Return the paths that a fit or tune step reads in addition to its store."""
    kernels = kernel_file(read, step)
    named = [read.path(getattr(step.args, key)) for key in step.args.inputs()]
    return named if kernels is None else [*named, kernels]


def _fit_inputs(context: StepContext, step: FitStep | TuneStep) -> dict[str, str]:
    return _digest_paths(require_path(context.store(step), "store"), *fit_files(context.read, step))


def _training_arguments(context: StepContext, step: FitStep | TuneStep) -> dict[str, Any]:
    """Return the common arguments of fits and searches of a step."""
    store = context.store(step)
    extra = collect_extras(step.args, store, context.read.path)
    places = {"data": store, "run": str(context.step_folder(step.id))}
    return {**places, "seed": step.args.seed, "extra": extra, "on_event": context.emit, **context.compute.arguments()}


def _fit(context: StepContext, step: FitStep, dry_run: bool = False) -> StepResult:
    from ..pipeline import run_method

    params, training = fit_params(context.read, step), _training_arguments(context, step)
    outcome = run_method(step.args.method, params, dry_run=dry_run, **training)
    return StepResult(outcome.plan or {}, {}) if dry_run else _fit_result(context, step, outcome)


def _tune(context: StepContext, step: TuneStep, dry_run: bool = False) -> StepResult:
    from ..pipeline import tune

    args, params, training = step.args, fit_params(context.read, step), _training_arguments(context, step)
    split = {"folds": args.folds, "repeats": args.repeats, "group_column": args.group_column}
    if dry_run:
        return StepResult(tune_plan(args.method, params, args.grid, split, training), {})
    scores = {"scoring": args.scoring, "refit": args.refit}
    return _fit_result(context, step, tune(args.method, args.grid, params=params, **split, **scores, **training))


def _fit_result(context: StepContext, step: FitStep | TuneStep, outcome: RunOutcome) -> StepResult:
    from .report.collect import model_run

    return StepResult(outcome.summary, _digest_paths(Path(model_run(context.step_folder(step.id))) / "model"))


def _use_inputs(context: StepContext, step: PredictStep | ScoreStep) -> dict[str, str]:
    files = _named_files(context, step, "covariates", *(("members", "user_labels") if isinstance(step, PredictStep) else ()))
    return _digest_paths(require_path(context.store(step), "store"), *(run / "model" for run in context.models(step)), *files.values())


def _covariates(context: StepContext, step: PredictStep | ScoreStep) -> str | None:
    return None if step.args.covariates is None else require_path(context.read.path(step.args.covariates), "covariates: file")


def _predict(context: StepContext, step: PredictStep, dry_run: bool = False) -> StepResult:
    from ..pipeline import predict_store

    (run,), out = context.models(step), context.read.path(step.args.out)
    if is_local(out) and not dry_run:
        Path(out).parent.mkdir(parents=True, exist_ok=True)
    settings = {"replace": out in context.written, "dry_run": dry_run, "on_event": context.emit, **context.compute.arguments()}
    settings |= {"excel_safe": step.args.excel_safe}
    args, store = step.args, context.store(step)
    if args.recommend is not None or args.members is not None or args.user_labels is not None:
        members, labels = (None if name is None else context.read.path(name) for name in (args.members, args.user_labels))
        asked = user_questions(args.recommend, members, labels, store, three_way=args.three_way, proba=args.proba)
        figures = answer_users(str(run), store, out, asked, **settings)
    else:
        named = {"covariates": _covariates(context, step), "three_way": args.three_way, "proba": args.proba}
        figures = predict_store(str(run), store, out, **named, **settings)
    return StepResult(figures, {} if dry_run else _digest_paths(out))


def _score(context: StepContext, step: ScoreStep, dry_run: bool = False) -> StepResult:
    from ..pipeline import score_store
    from ..pipeline.runs.evaluation import told_figures
    from .report.collect import save_score, write_json

    (run,), settings = context.models(step), {"on_event": context.emit, "dry_run": dry_run, **context.compute.arguments()}
    scores = score_store(str(run), context.store(step), covariates=_covariates(context, step), **settings)
    if dry_run:
        return StepResult(scores, {})
    save_score(run, context.store(step), scores)
    return StepResult(told_figures(scores), _digest_paths(write_json(context.step_folder(step.id) / "score.json", scores)))


def _scores_file(context: StepContext, step: CheckStep) -> Path:
    return context.step_folder(*context.read.spec.score_steps(step)) / "score.json"


def _check_inputs(context: StepContext, step: CheckStep) -> dict[str, str]:
    return _digest_paths(_scores_file(context, step))


def _check(context: StepContext, step: CheckStep) -> StepResult:
    bounds, scores = step.args.model_dump(exclude_none=True), json.loads(_scores_file(context, step).read_bytes())
    unmet = [
        f"{name} is {format_figure(scores.get(name)) or 'not among the scores'}, but must be {bound}"
        for name, bound in bounds.items()
        if not meets(scores.get(name), bound)
    ]
    if unmet:
        raise CheckFailed(", and ".join(unmet))
    return StepResult({name: scores[name] for name in bounds}, {})


def _stability_inputs(context: StepContext, step: StabilityStep) -> dict[str, str]:
    return _digest_paths(*(run / "model" for run in context.models(step)))


def _stability(context: StepContext, step: StabilityStep, dry_run: bool = False) -> StepResult:
    from ..pipeline import selection_stability
    from .report.collect import save_stability, write_json

    (run,) = context.models(step)
    settings = {"n_resamples": step.args.resamples, "seed": step.args.seed, "on_event": context.emit, "dry_run": dry_run}
    found = selection_stability(str(run), **settings, **context.compute.arguments())
    if dry_run:
        return StepResult(found, {})
    save_stability(run, found)
    file = write_json(context.step_folder(step.id) / "stability.json", found)
    return StepResult({name: value for name, value in found.items() if name != "features"}, _digest_paths(file))


def _report_inputs(context: StepContext, step: ReportStep) -> dict[str, str]:
    runs = context.models(step)
    measured = [run / name for run in runs for name in ("scores.json", "stability.json") if (run / name).exists()]
    return _digest_paths(*(run / "model" for run in runs), *measured)


def _report(context: StepContext, step: ReportStep) -> StepResult:
    from .report import write_report

    out = context.read.path(step.args.out) if step.args.out else context.step_folder(step.id)
    names = context.read.spec.model_steps(step)
    named = names if len(names) > 1 else [f"{context.read.spec.name}: {names[0]}"]
    told = {"excel_safe": step.args.excel_safe, "warn": lambda message: context.emit({"event": "warning", "message": message})}
    written = write_report(context.runs(step), out, named, context.written, **told)
    return StepResult({"report": str(written.page)}, _digest_paths(written.page, *written.tables))


def _verify_inputs(context: StepContext, step: VerifyStep) -> dict[str, str]:
    # The time makes every run another one: what was sound yesterday says nothing about today.
    return {context.store(step): str(time.time_ns())}


def _verify(context: StepContext, step: VerifyStep) -> StepResult:
    from ..storage import DigestMismatch

    report = open_store(require_path(context.store(step), "store")).verify()
    if not report.ok:
        listed = "; ".join(item.reason for item in report.damaged[:5])
        raise DigestMismatch(f"{context.store(step)}: {len(report.damaged)} of {report.n_objects} objects damaged: {listed}")
    return StepResult({"objects": report.n_objects, "bytes": report.nbytes}, {})


ACTIONS: dict[str, Action] = {
    "ingest": Action(_ingest_inputs, _ingest),
    "gram": Action(_gram_inputs, _gram),
    "fit": Action(_fit_inputs, _fit),
    "tune": Action(_fit_inputs, _tune),
    "predict": Action(_use_inputs, _predict),
    "score": Action(_use_inputs, _score),
    "check": Action(_check_inputs, _check, has_plan=False),
    "stability": Action(_stability_inputs, _stability),
    "report": Action(_report_inputs, _report, has_plan=False),
    "verify": Action(_verify_inputs, _verify, has_plan=False),
}
