"""Commands that compute: fit, tune, resume, predict, score, stability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from ...pipeline.registry import METHODS
from ..checking import ConfigError, Loc, Locator, by_name, by_option, validate_values
from ..console import Result, align_rows, plan_result, plan_text
from . import options as shared
from .actions import answer_users, collect_extras, explain_unbegun, require_path, require_run, tune_plan, user_questions
from .methods import PREFIX, method_group
from .options import ComputeOptions, Frame, Url, cluster_options, command, dry_run_option, explicit_values

if TYPE_CHECKING:
    from ...pipeline.records.config import MethodConfig
    from ...pipeline.runs.run import RunOutcome
    from ..schema import FitArgs


def outcome_result(outcome: RunOutcome, run: str, frame: Frame) -> Result:
    """Return the result of a fit, tune or resume."""
    if outcome.status == "planned":
        return Result("planned", {"run": run, "plan": outcome.plan}, plan_text(outcome.plan or {}))
    from ..texts import run_text

    text = "" if frame.as_json else run_text(run, outcome.status, warnings=frame.quiet or outcome.status != "done")
    return Result(outcome.status, {"run": run, "summary": outcome.summary}, text)


@method_group()
@command("fit", short_help="Fit a method to a store.")
@click.option("--data", type=Url("store"), metavar="STORE", help="Training data, a block store.")
@click.option("--stream", type=Url("stream"), metavar="FILE|-", help="Learn from SVMlight text instead, read once; - is standard input.")
@click.option("--n-features", type=click.IntRange(min=1), metavar="N", help="With --stream: width of the rows.")
@click.option("--labels", metavar="A,B,...", help="With --stream: the labels there will be; default -1,1.")
@click.option("--zero-based", type=click.Choice(["no", "yes"]), help="With --stream: whether indices count from zero; default no.")
@shared.task_option
@shared.run_option
@shared.set_option
@click.option("--test-share", type=float, default=0.0, metavar="SHARE", help="Hold out this share of the rows to measure accuracy.")
@shared.seed_option
@cluster_options
@dry_run_option
def fit(frame: Frame, method: str, data: str | None, run: str, compute: ComputeOptions, dry_run: bool, **options: Any) -> Result:
    """Fit METHOD to a store and keep everything in a run directory.

    Give the same command again to resume an interrupted run; a finished run is left unchanged.
    """
    from ...pipeline import run_method

    stream, text = options.pop("stream", None), {key: options.pop(key, None) for key in ("n_features", "labels", "zero_based")}
    source, extra = training_data(data, stream, text if stream is None else {**text, "task": options.pop("task")})
    asked = read_options(method, source, options)
    args, params = asked.args, explicit_values(asked.config())
    with explain_unbegun(run), frame.progress() as emit:
        extra = {**collect_extras(args, source, width=text["n_features"], spell=by_option), **extra}
        training = {"seed": args.seed, "extra": extra, "on_event": emit, **compute.arguments()}
        outcome = run_method(method, params, data=source, run=run, dry_run=dry_run, **training)
    return outcome_result(outcome, run, frame)


def training_data(data: str | None, stream: str | None, text: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the store or text to learn from, and the options of a text.

    Raises ConfigError unless exactly one of ``data`` and ``stream`` is given and exists. Also raises ConfigError if the number of features
    of a text is not given, or if options of texts are given with a store.
    """
    options = {key: value for key, value in text.items() if value is not None}
    if stream is None:
        if data is None:
            raise ConfigError("no training data; give --data STORE, or --stream FILE for text that is read once")
        for key in options:
            raise ConfigError(f"--{key.replace('_', '-')} describes text; give it with --stream, not with --data")
        return require_path(data, "store"), {}
    if data is not None:
        raise ConfigError("--data and --stream exclude each other; give one of them")
    if "n_features" not in options:
        raise ConfigError("--stream does not say how many features its rows have; give --n-features N")
    if "labels" in options:
        try:
            options["labels"] = [float(part) for part in options["labels"].split(",")]
        except ValueError:
            raise ConfigError(
                f"--labels {options['labels']} are not numbers; write numbers with commas between them, such as -1,1"
            ) from None
    if "zero_based" in options:
        options["zero_based"] = options["zero_based"] == "yes"
    return stream if stream == "-" else require_path(stream, "stream: file"), {"stream": options}


class Asked(NamedTuple):
    """The options of a fit: inputs, parameters as typed, a function that names parameters in error messages, and the number of features
    (``d``), which the check of kernels needs.
    """

    args: FitArgs
    values: dict[str, Any]
    place: Locator
    d: int | None

    def config(self, changed: Mapping[str, Any] | None = None, place: Locator | None = None) -> MethodConfig:
        """Return the checked parameters of the method, after replacing those in ``changed``. Raises ConfigError for an invalid key or
        value.
        """
        return shared.method_config(self.args.method, {**self.values, **(changed or {})}, place or self.place, self.d)


def read_options(method: str, data: str, options: dict[str, Any]) -> Asked:
    """Return the options of a fit on a store or text; each parameter is stored under its own name, whether it was typed as an option or by
    ``--set``.

    Raises ConfigError if a parameter is given twice.
    """
    from ...storage import BlockStore
    from ..schema import FitArgs

    values, source = shared.split_settings(options.pop("settings")), click.get_current_context().get_parameter_source
    typed = {name: options.pop(name) for name in [*options] if name.startswith(PREFIX)}
    named = {name.removeprefix(PREFIX): value for name, value in typed.items() if source(name) is ParameterSource.COMMANDLINE}
    args = validate_values(FitArgs, {"method": method, **options}, by_option)
    named |= args.params()
    for key in (*named, *args.inputs()):
        if key in values:
            raise ConfigError(f"{by_option((key,))} is also given by --set {key}; give it once")

    def place(loc: Loc) -> str:
        return by_option(loc) if loc and loc[0] in named else by_name("--set ")(loc)

    values |= named
    return Asked(args, values, place, BlockStore.open(require_path(data, "store")).meta.n_cols if "kernels" in values else None)


_SCORING = "Compare by this score of scikit-learn, such as roc_auc or neg_mean_absolute_error; of several the first decides."


def check_scoring(names: Sequence[str], refit: str | None) -> dict[str, Any]:
    """Return the scoring arguments of a search. Raises ConfigError for an unknown score, or a ``refit`` that is not among the names."""
    if not names and refit is None:
        return {}
    from ...pipeline.models.held_out_scores import read_scoring

    try:
        read_scoring(names or None, refit)
    except ValueError as error:
        raise ConfigError(f"--{error}") from None
    return {"scoring": list(names), "refit": refit}


def scored_methods() -> list[str]:
    """Return the methods whose fits can be compared."""
    return [name for name, info in METHODS.items() if info.config.has_scores]


@method_group(scored_methods)
@command("tune", short_help="Choose parameters by cross-validation and fit.")
@click.option("--data", type=Url("store"), required=True, metavar="STORE", help="Training data, a block store.")
@shared.run_option
@click.option(
    "--grid",
    "grids",
    multiple=True,
    required=True,
    metavar="KEY=A,B,...",
    help="Values of a parameter; may be repeated.",
    shell_complete=shared.complete_setting,
)
@shared.set_option
@shared.task_option
@click.option("--folds", type=click.IntRange(min=2), metavar="N", default=5, show_default=True, help="Folds of the cross-validation.")
@click.option("--repeats", type=click.IntRange(min=1), metavar="N", default=1, show_default=True, help="How often folds are drawn.")
@click.option("--group-column", metavar="NAME", help="What names the rows, or a feature: rows of one value lie in one fold.")
@click.option("--scoring", multiple=True, metavar="NAME,...", help=_SCORING, shell_complete=shared.complete_scoring)
@click.option("--refit", metavar="NAME", help="Which of the scores decides; default: the first.", shell_complete=shared.complete_scoring)
@shared.seed_option
@cluster_options
@dry_run_option
def tune(
    frame: Frame,
    method: str,
    data: str,
    run: str,
    grids: tuple[str, ...],
    folds: int,
    repeats: int,
    group_column: str | None,
    scoring: tuple[str, ...],
    refit: str | None,
    compute: ComputeOptions,
    dry_run: bool,
    **options: Any,
) -> Result:
    """Compare the parameters of a grid by cross-validation, and fit METHOD with the best parameters on all rows.

    The parameters are compared by accuracy, by R2 if the target is numeric, or by a score of scikit-learn (--scoring roc_auc).

    For fgm, every number of rounds up to max_rounds is compared at no extra cost, and the best one replaces max_rounds.
    """
    from ...pipeline import tune as tune_method

    # C=1,10 becomes the YAML list C=[1,10].
    lists = [text if text.partition("=")[2][:1] in ("", "[") else f"{text.replace('=', '=[', 1)}]" for text in grids]
    grid = {key: value if isinstance(value, list) else [value] for key, value in shared.split_settings(lists, "--grid").items()}
    names = [name.strip() for text in scoring for name in text.split(",")]
    scores, asked = check_scoring(names, refit), read_options(method, data, options)
    params, extra = check_grid(asked, grid), collect_extras(asked.args, data, spell=by_option)
    training = {"data": require_path(data, "store"), "run": run, "seed": asked.args.seed, "extra": extra}
    split: dict[str, Any] = {"folds": folds, "repeats": repeats, "group_column": group_column}
    with explain_unbegun(run), frame.progress() as emit:
        training |= {"on_event": emit, **compute.arguments()}
        if dry_run:
            plan = tune_plan(method, params, grid, split, training)
            return Result("planned", {"run": run, "plan": plan}, plan_text(plan))
        outcome = tune_method(method, grid, params=params, **split, **scores, **training)
    return outcome_result(outcome, run, frame)


def check_grid(asked: Asked, grid: dict[str, list[Any]]) -> dict[str, Any]:
    """Check every value of a grid before the first fit. Returns the fixed parameters, converted to their types.

    Raises ConfigError if a key is given twice or unknown, or a value is not allowed.
    """
    from ...pipeline.runs.tune import check_tunable

    params = explicit_values(asked.config())
    try:
        check_tunable(asked.args.method, grid)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    for key, values in grid.items():
        if key in asked.values:
            raise ConfigError(f"--grid {key}: {key} is also set by {asked.place((key,))}; give it once")
        if not values:
            raise ConfigError(f"--grid {key} has no value; give at least one, as in --grid {key}=1,10")
        for value in values:
            asked.config({key: value}, lambda loc: f"--grid {loc[0]}" if loc else "--grid")
    return params


@command("resume", short_help="Resume an interrupted run.")
@click.argument("run", type=Url("run"))
@cluster_options
def resume(frame: Frame, run: str, compute: ComputeOptions) -> Result:
    """Resume RUN from its last checkpoint, on the same cluster or another one, with the same --driver-memory or more."""
    from ...pipeline import resume_run
    from ..report.collect import is_tuned

    if is_tuned(require_run(run)):
        raise ConfigError(f"{run} was written by tune; give the tune command again to resume it")
    with frame.progress() as emit:
        outcome = resume_run(run, on_event=emit, **{**compute.arguments(), "cluster": compute.cluster})
    return outcome_result(outcome, run, frame)


_COVARIATES = "Covariates of the rows, where STORE keeps none (fgm)."


def _covariates_file(path: str | None) -> str | None:
    return None if path is None else require_path(path, "covariates: file")


@command("predict", short_help="Write predictions for a store or file.")
@click.argument("run", type=Url("run"))
@click.argument("store", type=Url("store"))
@click.argument("out", type=Url("predictions"))
@shared.file_option("--covariates", help=_COVARIATES)
@click.option("--three-way", is_flag=True, help="Predict irrelevant_label, too, for rows of neither class (tri-class-svm).")
@click.option("--proba", is_flag=True, help="Calibrate probabilities from the run's store, if the model has none: about five fits.")
@click.option("--recommend", type=click.IntRange(min=1), metavar="K", help="K candidates for every user of the fit (social-strength).")
@shared.file_option("--members", help="With --recommend: groups in place of users, by their members: a group and a row a line.")
@shared.file_option("--user-labels", help="Labels of all users from those of some: one a line, empty where unknown (social-strength).")
@shared.excel_safe_option
@cluster_options
@dry_run_option
def predict(
    frame: Frame,
    run: str,
    store: str,
    out: str,
    covariates: str | None,
    three_way: bool,
    proba: bool,
    recommend: int | None,
    members: str | None,
    user_labels: str | None,
    excel_safe: bool,
    compute: ComputeOptions,
    dry_run: bool,
) -> Result:
    """Write predictions and decision values of the rows of STORE to OUT (.npz, .csv, .parquet or .zarr), with ids or row numbers.

    STORE may be a file, such as a CSV; it is converted to a temporary store like the training data.

    Class probabilities are included if the model has them (loss logistic, or fitted with --set probability=sigmoid).
    """
    from ...pipeline import predict_store
    from ..report.collect import model_run

    if recommend is not None or members is not None or user_labels is not None:
        asked = user_questions(recommend, members, user_labels, store, three_way=three_way, proba=proba)
        with frame.progress() as emit:
            settings = {"excel_safe": excel_safe, "dry_run": dry_run, "on_event": emit, **compute.arguments()}
            result = answer_users(model_run(require_run(run)), require_path(store, "store"), out, asked, **settings)
        return plan_result(result) if dry_run else Result(fields=result, text=align_rows(list(result.items())))
    with frame.progress() as emit:
        settings = {"covariates": _covariates_file(covariates), "three_way": three_way, "proba": proba, "dry_run": dry_run}
        settings |= {"excel_safe": excel_safe, "on_event": emit, **compute.arguments()}
        result = predict_store(model_run(require_run(run)), require_path(store, "store"), out, **settings)
    return plan_result(result) if dry_run else Result(fields=result, text=align_rows(list(result.items())))


@command("score", short_help="Score a run on a store or file.")
@click.argument("run", type=Url("run"))
@click.argument("store", type=Url("store"))
@shared.file_option("--covariates", help=_COVARIATES)
@cluster_options
@dry_run_option
def score(frame: Frame, run: str, store: str, covariates: str | None, compute: ComputeOptions, dry_run: bool) -> Result:
    """Show the metrics of RUN on STORE (or on a file, as in predict), and store them in RUN for its report."""
    from ...pipeline import score_store
    from ...pipeline.runs.evaluation import told_figures
    from ...storage.objects import require_writable
    from ..report.collect import model_run, save_score
    from ..texts import score_text

    if not dry_run:
        require_writable(require_run(run))
    with frame.progress() as emit:
        settings = {"covariates": _covariates_file(covariates), "on_event": emit, "dry_run": dry_run, **compute.arguments()}
        result = score_store(model_run(require_run(run)), require_path(store, "store"), **settings)
    if dry_run:
        return plan_result(result)
    save_score(model_run(run), store, result)
    told = told_figures(result)
    return Result(fields=told, text=score_text(told, store))


@command("stability", short_help="Measure how stable a run's selected features are.")
@click.argument("run", type=Url("run"))
@click.option("--resamples", type=click.IntRange(min=1), default=50, show_default=True, metavar="N", help="Bootstrap resamples.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Root of their random numbers; default: that of the run.")
@cluster_options
@dry_run_option
def stability(frame: Frame, run: str, resamples: int, seed: int | None, compute: ComputeOptions, dry_run: bool) -> Result:
    """Show how often the method of RUN (fgm) selects each feature over resamples of the training rows, and store the result in RUN for its
    report.
    """
    from ...pipeline import selection_stability
    from ...storage.objects import require_writable
    from ..report.collect import model_run, save_stability
    from ..texts import stability_text

    if not dry_run:
        require_writable(require_run(run))
    with frame.progress() as emit:
        settings = {"n_resamples": resamples, "seed": seed, "on_event": emit, "dry_run": dry_run, **compute.arguments()}
        result = selection_stability(model_run(require_run(run)), **settings)
    if dry_run:
        return plan_result(result)
    save_stability(model_run(run), result)
    return Result(fields=result, text=stability_text(result, run))


_SPREAD = "Cluster directions of rows (the cosine kernel), the default; --no-normalize: their lengths, too."
_AGREE = "The run's store, to compare its labels with the clusters (Rand accuracy)."


@command("cluster", short_help="Cluster the rows of a run of npkl.")
@click.argument("run", type=Url("run"))
@click.argument("out", type=Url("predictions"))
@click.option("--n-clusters", type=click.IntRange(min=1), metavar="K", required=True, help="Number of clusters.")
@click.option("--normalize/--no-normalize", default=True, help=_SPREAD)
@click.option("--store", type=Url("store"), metavar="STORE", help=_AGREE)
@click.option(
    "--driver-memory", envvar="GRAMPLANE_DRIVER_MEMORY", metavar="SIZE", help="Memory of this process; default: half of the computer's."
)
@shared.seed_option
def cluster(
    frame: Frame, run: str, out: str, n_clusters: int, normalize: bool, store: str | None, driver_memory: str | None, seed: int
) -> Result:
    """Write the cluster of every row of RUN's data to OUT (.npz, .csv, .parquet or .zarr), by k-means under the kernel that npkl learnt.

    This process does all the work.
    """
    from ...cluster import driver_bytes
    from ...pipeline.runs.clusters import cluster_run
    from ..report.collect import model_run

    if store is not None:
        require_path(store, "store")
    settings = {"normalize": normalize, "seed": seed, "store": store, "memory": driver_bytes(driver_memory)}
    result = cluster_run(model_run(require_run(run)), out, n_clusters, **settings)
    return Result(fields=result, text=align_rows(list(result.items())))


COMMANDS = (fit, tune, resume, predict, cluster, score, stability)
