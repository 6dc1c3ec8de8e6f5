"""Converts users' data into the blocks that passes read; one code path for arrays, Dask arrays and stores."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import joblib
import numpy as np
import scipy.sparse as sp
import sklearn
from numpy.typing import ArrayLike
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from ...cluster import LogSink, TaskFailed, executor_for_client, machine_memory, open_executor, warn_of_unused_client
from ...cluster.events import Sink, ignore_event, shown_progress, tee
from ...kernels.jit import one_thread, watch_compilation
from ...storage import BlockStore, DataError, GramStore, MemoryBlocks, RunStore
from ...storage.data import in_memory, is_store, opened
from ...storage.errors import Foreign, Matrix, UserData
from ...storage.temporary import temporary_folder
from ..core.engine import begin_event
from ..core.resources import RunContext, ignore, once
from ..inputs.fit_warnings import MAX_NUMERIC_CLASSES
from ..inputs.labels import refuse_missing_names
from ..passes.blocks import Blocks
from .frames import encode_frame

UserRows: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix | BlockStore | GramStore | os.PathLike[str]
"""Accepted forms of rows: arrays, sparse matrices, Dask arrays, strings, precomputed matrices, a store or its path."""

Column: TypeAlias = ArrayLike | None  # what users hand over for every row: target, task, weight, or nothing
_CLIENT: ContextVar[Any] = ContextVar("gramplane_client", default=None)


@contextlib.contextmanager
def use_client(client: Foreign) -> Iterator[None]:
    """Run the passes of every fit inside the block on an existing Dask client.

    Use it if you already have a client. The parameter ``cluster`` accepts only strings, because scikit-learn must be able to clone
    parameters.

    Examples
    --------
    >>> from distributed import Client
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import FGMClassifier, use_client
    >>> with (
    ...     Client(processes=False, n_workers=1, dashboard_address=None) as client,
    ...     use_client(client),
    ... ):
    ...     FGMClassifier(B=2, max_rounds=2).fit(
    ...         *load_iris(return_X_y=True)
    ...     ).n_iter_
    2
    """
    token = _CLIENT.set(client)
    try:
        yield
    finally:
        _CLIENT.reset(token)


def encoded(estimator: Any, X: UserData, reset: bool) -> Matrix | None:
    """Return the features of a frame (:func:`encode_frame`), or ``None`` for numeric data. Emits the warnings of the encoding."""
    found = encode_frame(estimator, X, reset)
    for message in found.messages if found else ():
        warn_user(message)
    return None if found is None else found.rows


def features_of(estimator: Any, X: object) -> tuple[Any, bool]:
    """Return data in memory, and whether the estimator's fitted encoding was applied to them."""
    X = in_memory(X)
    features = encoded(estimator, X, reset=False)
    return (X, False) if features is None else (features, True)


def label_array(y: np.ndarray) -> np.ndarray:
    """Convert an object array of booleans, integers or floats to the matching dtype. Other arrays are returned unchanged.

    Raises ValueError for dates, for missing values, and for a word such as NA among numbers.
    """
    if y.dtype.kind in "OUS":
        refuse_missing_names(y, "y", "label")
    if y.dtype.kind in "mM" or (y.dtype.kind == "O" and any(hasattr(value, "isoformat") or hasattr(value, "to_period") for value in y[:1])):
        raise ValueError(f"y holds dates or times ({type(y.flat[0]).__name__}); give numbers, or texts as classes: y.astype(str)")
    if y.dtype.kind != "O" or not y.size:
        return y
    for kind, to in (((bool, np.bool_), np.bool_), ((int, np.integer), np.int64), ((float, np.floating, int, np.integer), np.float64)):
        if all(isinstance(value, kind) and (to is np.bool_ or not isinstance(value, bool)) for value in y):
            return y.astype(to)
    return y


def check_labels(y: np.ndarray) -> None:
    """Check the target of a classifier. Non-integer numbers are accepted as labels if they have few distinct values, each in several rows.

    Raises ValueError, as scikit-learn's ``check_classification_targets`` does.
    """
    if y.dtype.kind == "f" and np.isfinite(y).all():
        _, counts = np.unique(y, return_counts=True)
        if len(counts) <= MAX_NUMERIC_CLASSES and counts.min(initial=2) > 1:
            return
    check_classification_targets(y)


def stored_target(store: UserData) -> np.ndarray:
    """Return the target of a store, labels or numbers, ``(n_rows,)``. Raises DataError if the store has no target."""
    if not store.has_table("y"):
        raise DataError("there is no target; give y, or ingest a file that has one", store.url)
    labels, target = store.meta.labels, store.target()
    return target if labels is None else np.asarray(labels)[target.astype(np.int64)]


def truth_of(X: object, y: object) -> object:
    """Return the true target of rows: ``y``, or if ``None`` the target of the store ``X``."""
    if y is None and not is_store(X):
        raise ValueError("y is None: score needs the true targets, as y or in a block store passed as X")
    return stored_target(opened(X)) if y is None else y  # pyright: ignore[reportArgumentType] (it is a store)


def score_of(is_classifier: bool, X: object, y: object, predicted: np.ndarray, sample_weight: object = None) -> float:
    """Return the accuracy or R2 of predictions. Raises ValueError if the lengths of labels, weights and rows differ."""
    truth, weight = in_memory(truth_of(X, y), "y"), in_memory(sample_weight, "sample_weight")
    if not is_classifier:
        from sklearn.metrics import r2_score

        return float(r2_score(truth, predicted, sample_weight=weight))
    truth = label_array(column_or_1d(np.asarray(truth), warn=True))
    check_consistent_length(truth, predicted, weight)
    return float(np.average(truth == predicted, weights=weight))


# Where code lies that no user wrote: this package, scikit-learn, and what runs its folds.
_INNER = (
    *(str(Path(__file__).parents[2] / folder) + os.sep for folder in ("cluster", "kernels", "pipeline", "storage", "workflows")),
    *(str(Path(str(library.__file__)).parent) + os.sep for library in (sklearn, joblib)),
)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Emit a warning that points to the user's line: the innermost frame outside this package and scikit-learn."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_INNER):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@contextlib.contextmanager
def fit_context(
    data: BlockStore | MemoryBlocks, cluster: str | None, emit: Sink, seed: int, passes: Sink = ignore_event
) -> Iterator[RunContext]:
    """Yield the context of a fit. Without a cluster, passes run in this process. On a cluster, arrays are copied to a temporary store; this
    store and a temporary run are removed at exit.

    BLAS uses one thread inside the context, because its number of threads would change results. ``passes`` receives the executor's events.
    """
    client = _CLIENT.get()
    if client is not None and cluster is None:
        opening = executor_for_client(client, events=passes)
    else:
        if cluster is None and "distributed" in sys.modules:
            warn_of_unused_client()
        opening = open_executor(cluster, events=passes)
    with one_thread(), opening as executor, _plain_errors():
        if executor.kind == "sync":
            yield RunContext(executor, data=data, emit=emit, seed=seed)
            return
        with temporary_folder() as folder:
            stored = data
            if isinstance(data, MemoryBlocks):
                from ...storage.ingest import ingest

                # What may be missing was for the estimator to say.
                is_scaled = data.scale.kind != "none"
                missing = "keep" if data.meta.kind == "dense" and not is_scaled else "refuse"
                scale = data.scale if is_scaled else "none"
                stored = ingest(data.X, str(folder / "data.zarr"), task="regression", missing=missing, scale=scale, progress=None)
            run = RunStore.create(folder / "run", {})
            yield RunContext(executor, data=stored, scratch=run, emit=emit, seed=seed)


@contextlib.contextmanager
def method_context(
    data: Blocks, place: str | None, seed: int, all_memory: bool = False, emit: Sink = ignore, passes: Sink = ignore
) -> Iterator[RunContext]:
    """Yield the context of a fit whose passes run on ``place``. With ``all_memory``, the limit is the memory of this computer."""
    with fit_context(data, place, emit, seed, passes) as ctx:
        yield replace(ctx, doubt=warn_user, warn=once(warn_user), limit=machine_memory() if all_memory else None)


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Convert data errors of tasks to ``ValueError``, which users of arrays expect."""
    try:
        yield
    except TaskFailed as error:
        if isinstance(error.__cause__, ValueError):
            raise ValueError(str(error.__cause__)) from error
        raise


Seed: TypeAlias = int | np.integer | np.random.RandomState | None  # scikit-learn's ``random_state``


def seed_of(random_state: Seed) -> int:
    """Return the root seed of a fit from scikit-learn's ``random_state``. ``None`` gives 0, so fits are reproducible by default."""
    return 0 if random_state is None else int(check_random_state(random_state).randint(2**31 - 1))


def history_arrays(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return one array per metric, with one entry per iteration."""
    names = rows[0].keys() if rows else ()
    # JSON has no NaN and no infinity: they were written as null.
    return {name: np.array([float("nan") if row[name] is None else row[name] for row in rows]) for name in names}


Callbacks: TypeAlias = Callable[[Mapping[str, Any]], None] | Sequence[Callable[[Mapping[str, Any]], None]] | None


def fan_out(callbacks: Callbacks, verbose: int, shown: Sink = ignore_event) -> Sink:
    """Return one sink for all callbacks and the progress display. With ``verbose`` above 1 every event is also logged."""
    listed = [callbacks] if callable(callbacks) else list(callbacks or ())
    return tee([shown, *listed, *([LogSink()] if verbose > 1 else [])])


@contextlib.contextmanager
def shown_fit(verbose: int, name: str, config: Callable[[], Any]) -> Iterator[Sink]:
    """Yield a sink that shows the rounds of a running fit and reports compilation, if ``verbose``."""
    if not verbose:
        yield ignore_event
        return

    with shown_progress(verbose, name) as shown, watch_compilation(lambda function: shown({"event": "compile", "function": function})):
        shown(begin_event(name, config()))
        yield shown
