"""Data frames with non-numeric columns: the encoding is learnt when an estimator is fitted, and applied unchanged afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import get_tags

from ...storage.data import column_numbers, feature_groups
from ...storage.encoding.chunks import Chunk, chunk_of_objects, is_inexact
from ...storage.encoding.encoder import encode
from ...storage.encoding.frames import Frame, is_frame, open_frame
from ...storage.encoding.record import BEYOND, EXACT_INTEGERS, Form, TableColumns
from ...storage.encoding.table import TableReader
from ...storage.errors import Matrix, UserData


class Encoded(NamedTuple):
    """Rows as features, and messages about the encoding."""

    rows: Matrix
    messages: list[str]


class ObjectFrame(Frame):
    """An array of objects or strings as a table, with columns x0, x1, …"""

    def __init__(self, values: np.ndarray, columns: Sequence[str] | None = None) -> None:
        self._values, self.n_rows, self.name, self.numbers, self.has_texts_as_names = values, len(values), "<ndarray>", [], False
        self.columns = [f"x{k}" for k in range(values.shape[1])] if columns is None else list(columns)

    def chunk(self, k: int, lo: int, hi: int) -> Chunk:
        return chunk_of_objects(self._values[lo:hi, k].astype(object))


def encode_frame(estimator: Any, X: UserData, reset: bool) -> Encoded | None:
    """Return the rows of a frame as features, or ``None`` if ``X`` needs no encoding, such as a frame of numeric columns.

    With ``reset`` a new encoding is learnt and stored (see ``encoding_``). Otherwise the stored encoding is applied to the columns of the
    same names.

    Raises ValueError if a column is missing, has missing values that the estimator does not accept, or cannot become features. Raises
    TypeError if an entry is neither a string nor a number.
    """
    if reset:
        for name in ("_source_columns", "_is_frame_fit"):
            vars(estimator).pop(name, None)
    known: TableColumns | None = getattr(estimator, "_source_columns", None)
    frame = _new_table(estimator, X) if reset else None if known is None else _known_table(estimator, X, known)
    if frame is None:
        return None
    order = list(range(len(frame.columns))) if known is None else _places(frame, known)
    names, numbers = [frame.columns[k] for k in order], set(frame.numbers)
    if len(set(names)) < len(names):
        raise ValueError(f"the column name {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    plain = [k for k, place in enumerate(order) if place in numbers]
    chosen = getattr(estimator, "categorical", None)
    chosen = [] if chosen is None else column_numbers(chosen, len(names), "categorical")
    named = {names[j] for j in range(len(names)) if j in chosen or names[j] in chosen} - {names[k] for k in plain}
    form: Form = getattr(estimator, "_frame_form", "one-hot")
    reader = TableReader(names, plain, named=named, missing="keep", known=known, form=form, is_frame=True)
    coded = reader.final(_read_columns(reader, frame, order), 0)
    if not get_tags(estimator).input_tags.allow_nan:
        _refuse_missing(estimator, names, coded)
    columns = known or reader.encoding({})
    if reset:
        estimator._source_columns, estimator._is_frame_fit = columns, True
        _set_names(estimator, frame.has_texts_as_names, names)
    return Encoded(encode(columns, coded), reader.messages())


def _new_table(estimator: Any, X: UserData) -> Frame | None:
    """Return the table of a fit, or ``None`` for numeric data. Only rule methods accept arrays of strings; other methods raise an error."""
    if is_frame(X):
        frame = open_frame(X)
        if not frame.is_plain:
            return frame
        for k in frame.integers:
            _refuse_large(frame.columns[k], frame.content(k))
        return None
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "iu" and X.size and _is_large(X.min(), X.max()):
        column = int(is_inexact(X).any(axis=0).argmax())
        _refuse_large(f"x{column}", X[:, column])
    takes_names = getattr(estimator, "_frame_form", "") == "codes"
    is_text = takes_names and isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUS"
    return ObjectFrame(X) if is_text and any(isinstance(value, str) for value in X.ravel().tolist()) else None


def _known_table(estimator: Any, X: UserData, known: TableColumns) -> Frame | None:
    """Return the table to encode with a known encoding, or ``None`` if ``X`` holds features already."""
    if is_frame(X):
        frame = open_frame(X)
        has_sources = {column.name for column in known.sources} <= {*frame.columns}
        return None if not has_sources and frame.columns == known.feature_names else frame
    if not _is_frame_fit(estimator) or not isinstance(X, np.ndarray) or X.ndim != 2:
        return None
    if X.shape[1] != len(known.sources):
        count, name = len(known.sources), type(estimator).__name__
        raise ValueError(f"X has {X.shape[1]} features, but {name} is expecting {count} features as input, the columns of a frame")
    return ObjectFrame(X, [column.name for column in known.sources])


def _read_columns(reader: TableReader, frame: Frame, order: Sequence[int]) -> np.ndarray:
    """Return the columns of a frame as numbers, ``(n_columns, n)``."""
    out = np.empty((len(order), frame.n_rows))
    for k, place in enumerate(order):
        name = frame.columns[place]
        try:
            chunk = frame.chunk(place, 0, frame.n_rows)
        except (TypeError, ValueError) as error:
            raise type(error)(f"column {name!r}: {error}") from error
        if isinstance(chunk, np.ndarray) and reader.is_plain_number(k):
            _refuse_large(name, chunk)
            out[k] = np.ma.filled(chunk.astype(np.float64), np.nan)
        else:
            out[k] = reader.read(k, chunk, lambda reason, row, name=name: _fault(name, reason, row))
    reader.check_end(lambda reason, row, k: _fault(reader.names[k], reason, row))
    return out


def _is_large(low: Any, high: Any) -> bool:
    return int(low) < -EXACT_INTEGERS or int(high) > EXACT_INTEGERS


def _refuse_large(name: str, values: np.ndarray) -> None:
    """Raise ValueError for integers that float64 cannot represent exactly."""
    large = is_inexact(np.ma.getdata(values))
    if large.any():
        row = int(large.argmax())
        advice = f"if its values are names, make the column a category (astype('category') of {name!r})"
        raise _fault(name, f"value {values[row]} {BEYOND}; {advice}", row)


def _is_frame_fit(estimator: Any) -> bool:
    return bool(getattr(estimator, "_is_frame_fit", False))


def _fault(name: str, reason: str, row: int) -> ValueError:
    return ValueError(f"column {name!r}, row {row}: {reason}")


def _places(frame: Frame, known: TableColumns) -> list[int]:
    """Return the positions in the frame of the columns that an encoding reads."""
    places = {name: k for k, name in enumerate(frame.columns)}
    missing = [column.name for column in known.sources if column.name not in places]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(f"the frame lacks column {missing[0]!r}{more} of the training data; it has {', '.join(frame.columns[:20])}")
    return [places[column.name] for column in known.sources]


def _refuse_missing(estimator: Any, names: list[str], coded: np.ndarray) -> None:
    columns: TableColumns | None = getattr(estimator, "_source_columns", None)
    for k, values in enumerate(coded):
        gone = np.isnan(values)
        if gone.any() and (columns is None or columns.sources[k].missing in ("refuse", "keep")):
            count, name = int(gone.sum()), type(estimator).__name__
            values = f"{count} missing value{'s' if count > 1 else ''}, NaN or empty (the first in row {int(gone.argmax())})"
            advice = "fill them in before, or use RuleEnsembleClassifier, which accepts them"
            raise ValueError(f"column {names[k]!r} has {values}; {name} does not accept them: {advice}")


def _set_names(estimator: Any, are_names: bool, names: list[str]) -> None:
    """Set scikit-learn's attributes for the source columns of a fit."""
    estimator.n_features_in_ = len(names)
    vars(estimator).pop("feature_names_in_", None)
    if are_names:
        estimator.feature_names_in_ = np.array(names, dtype=object)


def feature_count(estimator: Any) -> int:
    """Return the number of features of a fitted estimator; with encoded columns it exceeds the number of columns."""
    return estimator._source_columns.n_features if _is_frame_fit(estimator) else estimator.n_features_in_


def known_names(estimator: object) -> Sequence[str] | None:
    """Return the feature names of a fit, or ``None`` if they are unknown."""
    labels = feature_labels(estimator)
    return getattr(estimator, "feature_names_in_", None) if labels is None else labels


def named_groups(estimator: Any, n: int) -> UserData:
    """Return the ``groups`` of n features, as in `feature_groups`. A Series may be indexed by the source columns of the features."""
    names = known_names(estimator)
    return feature_groups(estimator.groups, names, feature_labels(estimator, of_columns=True) or names, n)


def feature_labels(estimator: Any, *, of_columns: bool = False) -> list[str] | None:
    """Return the feature names of a fitted estimator, or ``None`` if scikit-learn's attributes already contain them.

    With ``of_columns``, return for every feature the name of the column that it was made from.
    """
    if (known := getattr(estimator, "_source_columns", None)) is not None:
        return [column.name for column in known.sources for _ in column.features] if of_columns else known.feature_names
    first = getattr(estimator, "_first_feature", 0)
    return [f"x{j + first}" for j in range(estimator.n_features_in_)] if first else None
