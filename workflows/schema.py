"""The format of a workflow file (``schema: gramplane.workflow/1``), and its reader.

Relative paths in a file are relative to the file's own folder, whatever the current folder.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model, model_validator

from ..pipeline.records.config import Scale
from ..pipeline.records.names import nearest
from ..pipeline.registry import extra_inputs
from ..storage.places import check_place, is_local
from ..storage.places import parse_place as placed
from .checking import ConfigError, Loc, describe_problem, keys_of
from .yaml_source import Document, read_yaml

SCHEMA = "gramplane.workflow/1"
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


# A path or URL for one use of it; ``file://`` becomes a path.
Source = Annotated[str, AfterValidator(partial(check_place, use="source", what="source"))]
Store = Annotated[str, AfterValidator(partial(check_place, use="store", what="store"))]
NewStore = Annotated[str, AfterValidator(partial(check_place, use="new-store", what="store"))]
Out = Annotated[str, AfterValidator(partial(check_place, use="predictions", what="out"))]
File = Annotated[str, AfterValidator(partial(check_place, use="file", what="file"))]
Stream = Annotated[str, AfterValidator(partial(check_place, use="stream", what="stream"))]
Folder = Annotated[str, AfterValidator(partial(check_place, use="folder", what="folder"))]
Run = Annotated[str, AfterValidator(partial(check_place, use="run", what="runs"))]
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_BOUND = re.compile(r"([<>]=?)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")


def _check_bound(value: object) -> str:
    if not isinstance(value, str) or _BOUND.fullmatch(value) is None:
        raise ValueError("must be <, <=, > or >= and a number, such as '> 0.8'")
    return value


def meets(score: float | None, bound: str) -> bool:
    """Return whether a score meets a bound such as ``> 0.8``. A score that is not defined meets none."""
    sign, number = _BOUND.fullmatch(bound).groups()  # pyright: ignore[reportOptionalMemberAccess] (checked when the file was read)
    return score is not None and _SIGNS[sign](score, float(number))


Bound = Annotated[str, BeforeValidator(_check_bound)] | None
Form = Literal["auto", "svmlight", "csv", "tsv", "parquet", "feather", "npz", "npy", "mat", "bed", "h5ad", "zarr", "fasta", "strings"]


class Closed(BaseModel):
    """Base of the parts of a workflow file: frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class IngestArgs(Closed):
    """Arguments of ``do: ingest``: a source becomes a block store."""

    source: Source = Field(description="file to read, a folder of Parquet files, or AnnData Zarr")
    store: NewStore | None = Field(None, description="block store to write; default: the workflow's store")
    format: Form = Field("auto", description="form of the source; auto: by name")
    encoding: str | None = Field(None, description="encoding of text without a byte order mark, such as latin-1; default UTF-8")
    n_features: int | None = Field(None, ge=1, description="number of columns, where the source does not say")
    like: Store | None = Field(
        None, description="store whose features, labels and scaling this one takes, and how they were made: test data"
    )
    zero_based: Literal["no", "yes", "auto"] | None = Field(None, description="whether SVMlight indices start at 0; default no")
    qid: Literal["refuse", "ignore"] | None = Field(None, description="what to do with qid: in SVMlight lines; default refuse")
    no_labels: bool = Field(False, description="SVMlight lines have no label, or one to be passed over; the store has no target")
    dtype: Literal["auto", "float32", "float64"] = Field("auto", description="auto: float32 when every value survives it")
    scale: Literal["none", "unit-column", "standard", "max-abs", "unit-row"] = Field("none", description="scaling, stored as factors")
    task: Literal["classification", "regression"] | None = Field(
        None, description="whether the target is a class or a number; default: a class, but more than 20 different numbers are rejected"
    )
    labels: list[str | int | float] | None = Field(None, description="the only class labels there may be; others are rejected")
    target: str | None = Field(None, description="column or array of the target, where the source has names")
    task_column: str | None = Field(None, description="column or array naming the task of each row")
    weight_column: str | None = Field(None, description="column or array of row weights")
    id_column: str | None = Field(None, description="column or array that names the rows; predictions show it")
    covariates: list[str] | None = Field(None, min_length=1, description="columns or arrays that are no features but covariates (fgm)")
    categorical: list[str] | None = Field(None, description="columns of a table whose values are names; texts always are")
    drop: list[str] | None = Field(None, description="columns of a table to leave out")
    columns: list[str] | None = Field(None, description="the only columns of a table that are features; default: all that are left")
    join: list[File] | None = Field(None, description="tables about the people of a .bed file, joined by FID and IID: targets, covariates")
    keep: File | None = Field(None, description="list of the only people of a .bed file to read: FID and IID")
    extract: File | None = Field(None, description="list of the only variants of a .bed file to read")
    layer: str | None = Field(None, description="layer of AnnData to read, or raw; default X")
    groups: File | None = Field(None, description="file with one group label per feature")
    names: File | None = Field(None, description="file with one name per feature, or var:NAME, a column of var of AnnData")
    layout: Literal["columns", "both"] = Field("columns", description="column stripes, or row blocks as well")
    missing: Literal["refuse", "keep", "mean", "median", "indicator"] = Field(
        "refuse",
        description="what to do with missing values: fill in the mean or median of the column; indicator: the mean, and features that say "
        "what is missing; keep: store them, for rule-ensemble alone",
    )
    missing_words: list[str] | None = Field(None, description="texts that stand for a missing value in any column of a table")
    decimal: Literal[".", ","] | None = Field(None, description="decimal sign of CSV and TSV text; default .")
    drop_missing_targets: bool = Field(False, description="leave out rows of a table or arrays whose target is missing")
    budget: str | int | None = Field(None, description="memory the ingest may take; default 256MiB")
    jobs: int | None = Field(None, ge=1, description="parser threads; default: two for a large file on several processors, else one")
    overwrite: bool = Field(False, description="replace a store made from another source or with other options")


class GramArgs(Closed):
    """Arguments of ``do: gram``: kernel matrices of a store's rows, kept in a Gram store."""

    store: Store | None = Field(None, description="block store whose rows are compared; default: the workflow's store")
    kernels: list[str | dict[str, Any]] | str = Field(
        min_length=1, description="kernels: texts such as rbf(gamma=0.5), records, {grid: ...}; or a file with such a list"
    )
    out: NewStore = Field(description="Gram store; kernels are added to one that is there")
    overwrite: bool = Field(False, description="replace a Gram store of other data")
    scale: Scale = "auto"


class StreamArgs(Closed):
    """A text that a fit reads once, instead of a store, and learns from while reading."""

    source: Stream = Field(description="SVMlight text")
    n_features: int = Field(ge=1, description="width of the rows")
    labels: list[float] | None = Field(None, min_length=2, description="the labels there will be; default -1 and 1")
    task: Literal["classification", "regression"] = Field("classification", description="what the labels are")
    zero_based: bool = Field(False, description="whether indices count from zero")


class MethodArgs(Closed):
    """Arguments of ``do: fit``; every other key is a parameter of the method."""

    model_config = ConfigDict(frozen=True, extra="allow")

    method: str = Field(description="name of the method, such as fgm")
    store: Store | None = Field(None, description="training data; default: the workflow's store")
    stream: StreamArgs | None = Field(None, description="text to learn from instead, read once (group-lasso)")
    task: Literal["classification", "regression"] | None = Field(None, description="what the target must be; default: as the store has it")
    test_share: float = Field(0.0, ge=0, lt=1, description="share of the rows held out, to measure accuracy along the path")
    seed: int = Field(0, ge=0, description="root of every random number")

    def params(self) -> dict[str, Any]:
        """Return the method's own parameters as written. If a predefined word is given instead of a file, it counts as a parameter."""
        files = self.inputs()
        words = {name: value for name in extra_inputs() if name not in files and (value := getattr(self, name)) is not None}
        return {**(self.model_extra or {}), **words}

    def inputs(self) -> dict[str, str]:
        """Return the inputs that were given in addition to the data: path of a store or file, by name."""
        given = {name: (getattr(self, name), item.words) for name, (item, _) in extra_inputs().items()}
        return {name: value for name, (value, words) in given.items() if value is not None and value not in words}


if TYPE_CHECKING:
    FitArgs = MethodArgs
else:  # with a field for everything that some method takes beside its data
    _INPUTS = {
        name: ((Store if item.reads == "store" else File) | None, Field(None, description=f"{item.form}, for {', '.join(takers)}"))
        for name, (item, takers) in extra_inputs().items()
    }
    FitArgs = create_model("FitArgs", __base__=MethodArgs, __doc__=MethodArgs.__doc__, **_INPUTS)


class TuneArgs(FitArgs):
    """Arguments of ``do: tune``: a grid of parameters compared by cross-validation; the best is fitted again on all rows."""

    grid: dict[str, list[Any]] = Field(min_length=1, description="values of each parameter to try")
    folds: int = Field(5, ge=2, description="folds of the cross-validation")
    repeats: int = Field(1, ge=1, description="how often the folds are drawn, each time from another seed")
    group_column: str | None = Field(None, description="what names the rows, or a feature: rows of one value lie in one fold")
    scoring: str | list[str] | None = Field(None, description="scores of scikit-learn, such as roc_auc, that settings are compared by")
    refit: str | None = Field(None, description="which of several scores decides; default: the first")

    @model_validator(mode="after")
    def _scores_are_known(self) -> TuneArgs:
        if self.scoring is not None or self.refit is not None:
            from ..pipeline.models.held_out_scores import read_scoring

            read_scoring(self.scoring, self.refit)
        return self

    @model_validator(mode="after")
    def _rows_are_read_again(self) -> TuneArgs:
        if self.stream is not None:
            raise ValueError("tune compares settings on held-out rows, but stream is read only once; ingest the text into a store")
        return self


class PredictArgs(Closed):
    """Arguments of ``do: predict``."""

    store: Store = Field(description="data to predict")
    out: Out = Field(description="file or folder to write; .npz, .csv, .parquet or .zarr")
    three_way: bool = Field(False, description="predict irrelevant_label, too, for rows of neither class (tri-class-svm)")
    proba: bool = Field(False, description="calibrate probabilities from the store of the fit, if the model has none: about five fits")
    excel_safe: bool = Field(False, description="quote texts of .csv files that a spreadsheet would compute (they begin with =, @, + or -)")
    recommend: int | None = Field(None, ge=1, description="candidates for every user of the fit (social-strength)")
    members: File | None = Field(None, description="groups to recommend in place of users: a group and a row of a member a line")
    user_labels: File | None = Field(None, description="labels of some users, one a line, empty where unknown, to be carried over to all")
    covariates: File | None = Field(None, description="covariates of the rows, where the store keeps none: csv, npy, npz, parquet (fgm)")
    model: str | None = Field(None, description="id of the fit or tune step; default: the one this step needs")


class ScoreArgs(Closed):
    """Arguments of ``do: score``."""

    store: Store = Field(description="data with known target")
    covariates: File | None = Field(None, description="covariates of the rows, where the store keeps none: csv, npy, npz, parquet (fgm)")
    model: str | None = Field(None, description="id of the fit or tune step; default: the one this step needs")


class CheckArgs(Closed):
    """Arguments of ``do: check``: bounds of the scores of the score step that it needs. If one is not met, the command ends with code 7."""

    accuracy: Bound = Field(None, description="share of rows predicted correctly, such as '> 0.8'")
    balanced_accuracy: Bound = Field(None, description="mean over the classes of the share predicted correctly")
    three_way_accuracy: Bound = Field(None, description="accuracy over both classes and the rows of neither (tri-class-svm)")
    mean_accuracy: Bound = Field(None, description="mean accuracy over tasks")
    auc: Bound = Field(None, description="area under the ROC curve, for two classes")
    mean_auc: Bound = Field(None, description="mean area over tasks")
    average_precision: Bound = Field(None, description="average precision, for two classes")
    log_loss: Bound = Field(None, description="log-loss of the probabilities, such as '< 0.5'")
    brier_score: Bound = Field(None, description="Brier score of the probabilities")
    r2: Bound = Field(None, description="R2 of a regression")
    mean_r2: Bound = Field(None, description="mean R2 over tasks")
    median_r2: Bound = Field(None, description="median R2 over tasks")
    rmse: Bound = Field(None, description="root mean squared error")
    mae: Bound = Field(None, description="mean absolute error")

    @model_validator(mode="after")
    def _has_a_bound(self) -> CheckArgs:
        if not self.model_dump(exclude_none=True):
            raise ValueError("check needs the bound of a score, such as {accuracy: '> 0.8'}")
        return self


class StabilityArgs(Closed):
    """Arguments of ``do: stability``: how often each feature is selected over resamples of the rows that a fit was made from (fgm)."""

    resamples: int = Field(50, ge=1, description="bootstrap resamples of the rows")
    seed: int | None = Field(None, ge=0, description="root of their random numbers; default: that of the fit")
    model: str | None = Field(None, description="id of the fit or tune step; default: the one this step needs")


class ReportArgs(Closed):
    """Arguments of ``do: report``."""

    models: list[str] | None = Field(None, description="ids of fit or tune steps, side by side; default: those this step needs")
    out: Folder | None = Field(None, description="folder to write; default: the step's own folder")
    excel_safe: bool = Field(False, description="quote texts of .csv files that a spreadsheet would compute (they begin with =, @, + or -)")


class VerifyArgs(Closed):
    """Arguments of ``do: verify``."""

    store: Store | None = Field(None, description="store to re-read against its checksums; default: the workflow's store")


class _Step(Closed):
    id: str = Field(pattern=f"^{ID.pattern}$", description="name of the step: letters, digits, dot, dash, underscore")
    needs: list[str] = Field(default_factory=list, description="ids of the steps that must be finished before")


class IngestStep(_Step):
    """Write a block store."""

    do: Literal["ingest"]
    args: IngestArgs = Field(alias="with")


class GramStep(_Step):
    """Write a Gram store."""

    do: Literal["gram"]
    args: GramArgs = Field(alias="with")


class FitStep(_Step):
    """Fit a method."""

    do: Literal["fit"]
    args: FitArgs = Field(alias="with")


class TuneStep(_Step):
    """Choose parameters by cross-validation and fit."""

    do: Literal["tune"]
    args: TuneArgs = Field(alias="with")


class PredictStep(_Step):
    """Write predictions."""

    do: Literal["predict"]
    args: PredictArgs = Field(alias="with")


class ScoreStep(_Step):
    """Measure a model on a store."""

    do: Literal["score"]
    args: ScoreArgs = Field(alias="with")


class CheckStep(_Step):
    """Fail if a score does not meet its bound."""

    do: Literal["check"]
    args: CheckArgs = Field(alias="with")


class StabilityStep(_Step):
    """Measure how stable a selection is."""

    do: Literal["stability"]
    args: StabilityArgs = Field(default_factory=lambda: StabilityArgs.model_validate({}), alias="with")


class ReportStep(_Step):
    """Write a report page."""

    do: Literal["report"]
    args: ReportArgs = Field(default_factory=lambda: ReportArgs.model_validate({}), alias="with")


class VerifyStep(_Step):
    """Re-read a store."""

    do: Literal["verify"]
    args: VerifyArgs = Field(default_factory=lambda: VerifyArgs.model_validate({}), alias="with")


Step = Annotated[
    IngestStep | GramStep | FitStep | TuneStep | PredictStep | ScoreStep | CheckStep | StabilityStep | ReportStep | VerifyStep,
    Field(discriminator="do", description="one step"),
]
USING = (PredictStep, ScoreStep, StabilityStep)  # steps that use one model
STEPS: dict[str, type[_Step]] = {get_args(kind.model_fields["do"].annotation)[0]: kind for kind in get_args(get_args(Step)[0])}


class WorkflowSpec(Closed):
    """A workflow file."""

    version: Literal["gramplane.workflow/1"] = Field(alias="schema", description="form of this file")
    name: str = Field(pattern=f"^{ID.pattern}$", description="name of the workflow")
    store: Store | None = Field(None, description="block store that steps use unless they name one")
    runs: Run = Field("runs", description="folder of the run directories")
    cluster: str = Field("sync", description="sync, local:N, local:NxT, tcp://, tls://, scheduler-file:PATH")
    worker_memory: str | int | None = Field(None, description="memory of a worker")
    driver_memory: str | int | None = Field(None, description="memory the driver may hold; default: half of the computer's")
    allow_plaintext: bool = Field(False, description="allow an unencrypted connection to a remote cluster")
    stall_timeout: float | None = Field(None, gt=0, allow_inf_nan=False, description="seconds without a finished task before giving up")
    steps: list[Step] = Field(min_length=1, description="what to do")

    def model_steps(self, step: Step) -> list[str]:
        """Return the ids of the fit and tune steps whose models ``step`` uses: the steps that it names or, if it names none, those that it
        needs.
        """
        fitted = {other.id for other in self.steps if isinstance(other, FitStep | TuneStep)}
        model = getattr(step.args, "model", None)
        named = getattr(step.args, "models", None) or ([model] if model else step.needs)
        return [name for name in named if name in fitted]

    def score_steps(self, step: Step) -> list[str]:
        """Return the ids of the score steps that ``step`` needs."""
        return [other.id for other in self.steps if isinstance(other, ScoreStep) and other.id in step.needs]

    def step_store(self, step: Step) -> str | None:
        """Return the store or text of a step: its own or, if it has none, the workflow's."""
        stream = getattr(step.args, "stream", None)
        return getattr(step.args, "store", None) or self.store if stream is None else stream.source


def _known_keys(loc: Loc) -> Iterable[str]:
    """Return the keys that are allowed in the same mapping as the key at ``loc``. In pydantic's locations, the value of ``do`` follows the
    index of the step.
    """
    if loc[0] != "steps" or len(loc) < 4:
        return keys_of(WorkflowSpec)
    step = STEPS[str(loc[2])]
    return keys_of(step if len(loc) == 4 else cast("type[BaseModel]", step.model_fields["args"].annotation))


@dataclass(frozen=True)
class Workflow:
    """A checked workflow file: its contents, and the position of each value."""

    spec: WorkflowSpec
    document: Document

    @property
    def folder(self) -> Path:
        """The folder that relative paths start from."""
        return self.document.path.resolve().parent

    def path(self, text: str) -> str:
        """Return a path of the file as an absolute path; URLs are returned unchanged."""
        path = placed(text).text if text else text
        return str(self.folder / path) if not text or is_local(text) else path

    def cluster(self) -> str:
        """Return the cluster text; the path of a scheduler file is made absolute."""
        kind, _, address = self.spec.cluster.partition(":")
        return f"{kind}:{self.path(address)}" if kind == "scheduler-file" else self.spec.cluster

    def step(self, name: str) -> Step:
        """Return the step ``name``. Raises ConfigError with the closest name if there is none."""
        steps = {step.id: step for step in self.spec.steps}
        if name not in steps:
            raise ConfigError(f"{self.document.path}: no step {name!r}{nearest(name, steps)}")
        return steps[name]

    def order(self) -> list[Step]:
        """Return the steps in the file's order, except that each step comes after those it needs."""
        done: list[Step] = []
        left = list(self.spec.steps)
        while left:
            ready = next(step for step in left if all(need not in {other.id for other in left} for need in step.needs))
            left.remove(ready)
            done.append(ready)
        return done


def _check_ids(spec: WorkflowSpec, document: Document) -> None:
    seen: dict[str, int] = {}
    for index, step in enumerate(spec.steps):
        if step.id in seen:
            raise ConfigError(f"{document.place(('steps', index, 'id'))}: id {step.id!r} is taken by steps[{seen[step.id]}]")
        seen[step.id] = index
    for index, step in enumerate(spec.steps):
        for position, need in enumerate(step.needs):
            if need not in seen:
                raise ConfigError(f"{document.place(('steps', index, 'needs', position))}: no step {need!r}{nearest(need, seen)}")


def _check_cycles(spec: WorkflowSpec, document: Document) -> None:
    left = {step.id: set(step.needs) for step in spec.steps}
    while True:
        ready = {name for name, needs in left.items() if not needs & left.keys()}
        if not ready:
            break
        left = {name: needs for name, needs in left.items() if name not in ready}
    if left:
        index = next(i for i, step in enumerate(spec.steps) if step.id in left)
        raise ConfigError(f"{document.place(('steps', index, 'needs'))}: steps {', '.join(left)} need one another in a circle")


def _check_models(spec: WorkflowSpec, document: Document) -> None:
    """Check that a step which uses a model needs the step that makes it."""
    for index, step in enumerate(spec.steps):
        named = [step.args.model] if isinstance(step, USING) and step.args.model else []
        named = list(step.args.models or []) if isinstance(step, ReportStep) else named
        for name in named:
            if name not in step.needs:
                raise ConfigError(f"{document.place(('steps', index, 'with'))}: uses the model of {name!r}; add {name!r} to needs")
        if isinstance(step, (*USING, ReportStep)) and not spec.model_steps(step):
            raise ConfigError(f"{document.place(('steps', index))}: uses a model, but its needs list no fit or tune step; add one to needs")
        if isinstance(step, USING) and len(spec.model_steps(step)) > 1:
            raise ConfigError(f"{document.place(('steps', index))}: its needs list several fit or tune steps; choose one with 'model:'")
        if isinstance(step, CheckStep) and len(spec.score_steps(step)) != 1:
            raise ConfigError(f"{document.place(('steps', index))}: checks scores, so its needs must list one score step")


def check_document(document: Document, allow_code: bool = False) -> Workflow:
    """Return the workflow of a parsed file. Raises ConfigError with ``file:line:column`` of every wrong key or value and the closest known
    name.
    """
    if not isinstance(document.data, Mapping):
        raise ConfigError(f"{document.place()}: a workflow file is a mapping with schema, name and steps")
    if document.data.get("schema") != SCHEMA:
        version = document.data.get("schema")
        raise ConfigError(f"{document.place(('schema',))}: schema {version!r} is not known here; write schema: {SCHEMA}")
    try:
        spec = WorkflowSpec.model_validate(document.data)
    except ValidationError as problem:

        def place(loc: Loc) -> str:
            # Without the discriminator that pydantic puts behind the index of a step.
            return document.place(loc[:2] + loc[3:] if len(loc) > 2 and loc[0] == "steps" else loc)

        raise describe_problem(problem, place, _known_keys) from None
    for check in (_check_ids, _check_cycles, _check_models):
        check(spec, document)
    for index, step in enumerate(spec.steps):
        if "store" in type(step.args).model_fields and spec.step_store(step) is None:
            raise ConfigError(f"{document.place(('steps', index))}: neither the step nor the workflow names a store; add `store:`")
    if spec.cluster.startswith("factory:") and not allow_code:
        raise ConfigError(f"{document.place(('cluster',))}: {spec.cluster!r} runs code named in the file; allow it with --allow-code")
    return Workflow(spec, document)


def read_workflow(path: str | Path, allow_code: bool = False, environ: Mapping[str, str] | None = None) -> Workflow:
    """Read and check a workflow file.

    Parameters
    ----------
    path
        The YAML file.
    allow_code
        Accept a ``factory:`` cluster, which runs code named in the file.
    environ
        Variables for ``${NAME}``; the process environment by default.

    Raises
    ------
    ConfigError
        If the file is not valid, with ``file:line:column`` of every wrong key or value and the closest known name.
    """
    return check_document(read_yaml(path, environ), allow_code)


class ResultLine(BaseModel):
    """The last line on stdout of every command with ``--json``."""

    model_config = ConfigDict(extra="allow")

    status: str = Field(description="done, already-done, planned, ok, damaged, error, ...")
    exit: int = Field(description="exit code of the process")
    command: str = Field(description="the command that ran")
    error: str | None = Field(None, description="the message, when status is error")
