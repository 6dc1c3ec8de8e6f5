"""From what users hand over to what passes read: one path for arrays, Dask arrays and stores."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeAlias

import joblib
import numpy as np
import scipy.sparse as sp
import sklearn
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_array, check_X_y, validate_data

from ...cluster import LogSink, TaskFailed, executor_for_client, open_executor
from ...kernels.jit import one_thread
from ...storage import BlockStore, GramStore, MemoryBlocks, RunStore, admit, gather
from ...storage.encoding.frames import is_frame
from ...storage.temporary import temporary_folder
from ...storage.value_types import Foreign, Matrix, UserData
from ..records.context import RunContext
from ..records.data_set import refuse_missing
from .frames import encode_frame, feature_labels

UserRows: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix | BlockStore | GramStore | os.PathLike[str]
"""Rows as users hand them over: arrays, sparse matrices, Dask arrays, strings, precomputed matrices, or a store or its path."""

Column: TypeAlias = ArrayLike | None  # what users hand over for every row: target, task, weight, or nothing
_CLIENT: ContextVar[Any] = ContextVar("gramplane_client", default=None)


@contextlib.contextmanager
def use_client(client: Foreign) -> Iterator[None]:
    """Run the passes of every fit inside the block on an existing Dask client.

    Estimators take strings only (they clone); this is the way to use a client you already have.
    """
    token = _CLIENT.set(client)
    try:
        yield
    finally:
        _CLIENT.reset(token)


def is_store(X: object) -> bool:
    """Return whether ``X`` is a block store or a path to one."""
    return isinstance(X, (BlockStore, str, os.PathLike))


def is_dask(X: object) -> bool:
    """Return whether ``X`` is a Dask collection."""
    return hasattr(X, "__dask_graph__")


def in_memory(X: object, name: str = "X") -> UserData:
    """Return what users hand over as it lies in memory: of a Dask collection what it holds, and sparse matrices through the one door.

    Raises DataError: a sparse matrix with a place outside of it, by ``name`` and position.
    """
    if not is_dask(X):
        return admit(X, name)
    value = admit(gather(X, name), name)
    if is_frame(value):
        return value
    return value.tocsr() if hasattr(value, "tocsr") else np.asarray(value)


def validated(estimator: Any, X: object, y: UserData = "no_validation", **options: Any) -> Any:
    """Return what scikit-learn's ``validate_data`` returns, of data that came through :func:`in_memory`; nobody else calls it.

    Frames with columns of names are encoded (:func:`encode_frame`), and their features are looked at.
    """
    rows, y, reset = in_memory(X), in_memory(y, "y"), options.pop("reset", True)
    encoded = encode_frame(estimator, rows, reset)
    if encoded is None:
        return validate_data(estimator, rows, y, reset=reset, **options)
    for message in encoded.messages:
        warn_user(message)
    has_target = not isinstance(y, str) or y != "no_validation"
    if has_target and y is not None:
        return check_X_y(encoded.rows, y, estimator=estimator, **options)
    of_rows = {name: value for name, value in options.items() if name not in ("multi_output", "y_numeric")}
    rows = check_array(encoded.rows, estimator=estimator, input_name="X", **of_rows)
    return (rows, y) if has_target else rows


def features_of(estimator: Any, X: object) -> tuple[Any, bool]:
    """Return what users hand over as it lies in memory; of a frame that a fitted estimator encodes its features, and True."""
    X = in_memory(X)
    encoded = encode_frame(estimator, X, reset=False)
    for message in encoded.messages if encoded else ():
        warn_user(message)
    return (X, False) if encoded is None else (encoded.rows, True)


def label_array(y: np.ndarray) -> np.ndarray:
    """Return a target whose objects are all truth values, all whole numbers or all numbers as an array of these; any other as it is."""
    if y.dtype.kind != "O" or not y.size:
        return y
    for kind, to in (((bool, np.bool_), np.bool_), ((int, np.integer), np.int64), ((float, np.floating, int, np.integer), np.float64)):
        if all(isinstance(value, kind) and (to is np.bool_ or not isinstance(value, bool)) for value in y):
            return y.astype(to)
    return y


def labels_of(y: object) -> Any:
    """Return labels as :func:`label_array` does, of whatever users hand over."""
    y = in_memory(y, "y")
    return label_array(y) if isinstance(y, np.ndarray) else y


# Where code lies that no user wrote: this package, scikit-learn, and what runs its folds.
_INNER = (
    *(str(Path(__file__).parents[2] / folder) + os.sep for folder in ("cluster", "kernels", "pipeline", "storage", "workflows")),
    *(str(Path(str(library.__file__)).parent) + os.sep for library in (sklearn, joblib)),
)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user: the nearest one outside of this package and of scikit-learn, however deep the call is."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_INNER):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class OneThread:
    """What estimators compute, they compute while BLAS has one thread: by the number of its threads last bits would depend on the machine.

    Every public method of a class that derives from this one holds it, so that none can be forgotten.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(cls, name, _alone(method))
        super().__init_subclass__(**options)


def _alone(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def held(*args: Any, **options: Any) -> Any:
        with one_thread():
            return method(*args, **options)

    return held


class Classifying(ClassifierMixin):
    """scikit-learn's part of a classifier, for which what it compares with comes through :func:`in_memory`."""

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """Return the share of right labels."""
        return super().score(X, labels_of(y), sample_weight)  # pyright: ignore[reportArgumentType] (an array, as documented)


class Predicting(RegressorMixin):
    """scikit-learn's part of a regressor, for which what it compares with comes through :func:`in_memory`."""

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """Return the coefficient of determination, R2."""
        return super().score(X, in_memory(y, "y"), sample_weight)  # pyright: ignore[reportArgumentType] (an array, as documented)


class Selection(SelectorMixin):
    """scikit-learn's part of a selector, for which sparse matrices come through :func:`in_memory`."""

    def transform(self, X: object) -> Matrix:
        """Return the selected columns of ``X``; of a frame with nominal columns the selected features."""
        rows, is_encoded = features_of(self, X)
        return self._transform(rows) if is_encoded else super().transform(rows)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the selected columns or features."""
        names = feature_labels(self) if input_features is None else None
        if names is None:
            return super().get_feature_names_out(input_features)
        return np.asarray(names, dtype=object)[self.get_support()]

    def inverse_transform(self, X: object) -> Matrix:
        """Return ``X`` ``(n_samples, n_selected)`` with columns of zeros where features were not selected."""
        return super().inverse_transform(in_memory(X))


def opened(X: UserData) -> BlockStore:
    """Return the block store behind a path or object."""
    return X if isinstance(X, BlockStore) else BlockStore.open(X)


def opened_for(estimator: Any, X: object) -> BlockStore:
    """Return the block store behind a path or object. Raises DataError: missing values, and the estimator's tags do not allow NaN."""
    store = opened(X)
    if not get_tags(estimator).input_tags.allow_nan:
        refuse_missing(store, type(estimator).__name__)
    return store


@contextlib.contextmanager
def fit_context(
    data: BlockStore | MemoryBlocks, cluster: str | None, emit: Callable[[Mapping[str, Any]], None], seed: int
) -> Iterator[RunContext]:
    """Yield the context of a fit: in-process for arrays; on a cluster through a temporary store and run, removed at exit.

    BLAS has one thread meanwhile: by their number results would depend on the machine.
    """
    client = _CLIENT.get()
    opening = executor_for_client(client) if client is not None and cluster is None else open_executor(cluster)
    with one_thread(), opening as executor, _plain_errors():
        if executor.kind == "sync":
            yield RunContext(executor, data, emit=emit, seed=seed)
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
            yield RunContext(executor, stored, run=run, emit=emit, seed=seed)


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Let what a task says of the data be the ``ValueError`` that users of arrays expect."""
    try:
        yield
    except TaskFailed as error:
        if isinstance(error.__cause__, ValueError):
            raise ValueError(str(error.__cause__)) from error
        raise


def seed_of(random_state: Any) -> int:
    """Return the root seed of a fit from scikit-learn's ``random_state``; 0 for ``None``, so that fits repeat."""
    return 0 if random_state is None else int(check_random_state(random_state).randint(2**31 - 1))


def history_arrays(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return one array per figure over the iterations."""
    names = rows[0].keys() if rows else ()
    # JSON has no NaN and no infinity: they were written as null.
    return {name: np.array([float("nan") if row[name] is None else row[name] for row in rows]) for name in names}


def fan_out(callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None, verbose: int) -> Callable[[Mapping[str, Any]], None]:
    """Return one sink for all callbacks, and for the log when ``verbose``."""
    sinks = list(callbacks or ())
    if verbose:
        sinks.append(LogSink())

    def emit(event: Mapping[str, Any]) -> None:
        for sink in sinks:
            sink(event)

    return emit
