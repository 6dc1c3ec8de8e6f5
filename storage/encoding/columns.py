"""Conversion of one table column to numbers; its kind follows from its values, or is known from an encoding."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .chunks import (
    Chunk,
    Unreadable,
    Words,
    first_rows,
    in_order,
    looks_like_date,
    missing_in,
    truth_value,
    words_of_numbers,
)
from .record import BEYOND, REFUSAL, as_number, has_leading_zero, is_large_integer, is_missing_word, is_number_like

Fault = Callable[[str, int], Exception]  # builds the error for a reason and a row, counted inside the rows at hand
Floats = npt.NDArray[np.float64]

MAX_LEVELS = 1 << 16  # a column of more texts names its rows, or is free text
UNSEEN = -1.0  # number of a level that an encoding does not know
_LIMIT = 64 << 20  # bytes of the levels of a column, where no budget says less
_SHOWN = 40
_SHOWN_LEVELS = 3
_MANY, _NEARLY = 20, 0.75  # levels, and share of the rows, above which levels are taken for something else

ColumnKind = Literal["numeric", "boolean", "nominal"]


@dataclass
class ColumnReader:
    """Converts a column to numbers, piece by piece: numbers stay unchanged, truth values become 0 and 1, names become codes, and missing
    values become NaN.

    A column of texts is numeric if its first non-missing cell is a number, boolean if it is ``true`` or ``false``, else nominal; a later
    cell that does not fit is rejected. Codes are assigned in order of appearance, until `final` replaces them by the numbers of the sorted
    levels.

    * ``is_named``: the user declared the values to be names.
    * ``is_known``: kind and levels come from an encoding.
    * ``refuses``: missing values are rejected.
    * ``limit``: largest size of the levels in bytes.
    """

    name: str
    kind: ColumnKind | None = None
    levels: dict[str, int] = field(default_factory=dict)
    is_named: bool = False
    is_known: bool = False
    refuses: bool = True
    is_frame: bool = False
    limit: int = _LIMIT
    order: list[str] | None = None
    is_typed: bool = False
    unseen: Counter[str] = field(default_factory=Counter)
    n_rows: int = 0
    n_undecided: int = 0
    doubtful: tuple[int, str] | None = None
    n_bytes: int = 0
    padded: str = ""

    def read(self, chunk: Chunk, fault: Fault) -> Floats:
        """Return the numbers of some rows. Raises the exception built by ``fault`` for values that the column cannot have, or if there
        are too many names.
        """
        if isinstance(chunk, Unreadable):
            reason = f"the values have the type {chunk.type}; numbers, truth values and names are expected"
            times = f"the values are dates or times ({chunk.type}), which cannot be features; {self._date_advice}"
            raise fault(times if chunk.is_time else reason, 0)
        if self.kind is None:
            self._decide(chunk)
        values = self._read_words(chunk, fault) if isinstance(chunk, Words) else self._read_numbers(chunk, fault)
        self.n_rows += len(values)
        return values

    def _decide(self, chunk: Chunk) -> None:
        self.kind = "nominal" if self.is_named else _kind_of(chunk)
        if isinstance(chunk, Words) and chunk.is_type:
            self.kind, self.is_typed = "nominal", True
        if self.kind in ("numeric", "boolean"):
            # Until now there were words for missing values only, as codes.
            self.n_undecided = self.n_rows
            self.levels.clear()

    def _read_numbers(self, chunk: npt.NDArray[Any], fault: Fault) -> Floats:
        if self.kind == "nominal":
            return self._read_words(words_of_numbers(chunk, self.is_named), fault)
        values = np.ma.filled(chunk.astype(np.float64), np.nan)
        if self.kind == "boolean":
            bad = np.flatnonzero(~np.isin(values, (0.0, 1.0)) & ~np.isnan(values))
            if bad.size:
                raise fault(f"value {values[bad[0]]:g} is neither true nor false, but all values before it are", int(bad[0]))
        self._check_missing(np.isnan(values), fault)
        return values

    def _read_words(self, chunk: Words, fault: Fault) -> Floats:
        table = np.full(len(chunk.words) + 1, np.nan)
        first = first_rows(chunk.codes, len(chunk.words))
        used = in_order(first, len(chunk.codes))
        is_type = chunk.is_type or self.is_named
        for k in used:
            table[k] = self._number(str(chunk.words[k]), int(first[k]), is_type, fault)
        if self.is_known and self.kind == "nominal":
            counts = np.bincount(chunk.codes[chunk.codes >= 0], minlength=len(chunk.words))
            self.unseen.update({str(chunk.words[k]): int(counts[k]) for k in used if table[k] == UNSEEN})
        elif chunk.is_type and self.kind == "nominal":
            self._take_order(chunk, fault)
        values = table[np.where(chunk.codes < 0, len(chunk.words), chunk.codes)]
        self._check_missing(np.isnan(values), fault)
        return values

    def _number(self, word: str, row: int, is_type: bool, fault: Fault) -> float:
        if self.kind == "numeric":
            if is_large_integer(word):
                raise fault(f"value {_shown(word)} {BEYOND}; {self._name_advice}", row)
            if not is_number_like(word) and not is_missing_word(word):
                raise fault(f"value {_shown(word)} is not a finite number, in a column of numbers; {self._name_advice}", row)
            if has_leading_zero(word):
                self.padded = self.padded or word
            return float(word.strip()) if is_number_like(word) else np.nan  # what is not finite is refused with all others
        if self.kind == "boolean":
            value = truth_value(word)
            if value is None and not is_missing_word(word):
                raise fault(f"value {_shown(word)} is neither true nor false; {self._name_advice}", row)
            return np.nan if value is None else value
        return np.nan if not word else self._code(word, row, is_type, fault)

    def _code(self, word: str, row: int, is_type: bool, fault: Fault) -> float:
        code = self.levels.get(word)
        if code is not None or self.is_known:
            return UNSEEN if code is None else float(code)
        if self.kind is None:
            self.doubtful = self.doubtful or (self.n_rows + row, word)
        elif not is_type and as_number(word.strip()) is not None:
            raise fault(f"value {_shown(word)} is a number among texts such as {self._example()}; {self._name_advice}", row)
        return float(self._add(word, row, fault))

    def _add(self, word: str, row: int, fault: Fault) -> int:
        self.n_bytes += len(word.encode())
        if len(self.levels) >= MAX_LEVELS or self.n_bytes > self.limit:
            most = f"{MAX_LEVELS} categories" if len(self.levels) >= MAX_LEVELS else f"{self.limit} bytes of category names"
            advice = f"{self._leave_advice}, or hash it (guide: Sparse logs and text)"
            raise fault(f"more than {most}, too many for a nominal column; {advice}", row)
        return self.levels.setdefault(word, len(self.levels))

    def _example(self) -> str:
        return _shown(next(iter(self.levels), ""))

    def _take_order(self, chunk: Words, fault: Fault) -> None:
        """Store the names of a category type (including names that do not occur), and their order if it is meaningful."""
        for word in chunk.words:
            if word and word not in self.levels:
                self._add(word, 0, fault)
        if chunk.is_ordered:
            self.order = list(dict.fromkeys([*(self.order or ()), *filter(None, chunk.words)]))

    def _check_missing(self, gone: npt.NDArray[np.bool_], fault: Fault) -> None:
        if not self.refuses:
            return
        if self.kind in ("numeric", "boolean") and self.doubtful is not None:
            raise fault(missing_refusal(self.doubtful[1]), self.doubtful[0] - self.n_rows)
        if gone.any():
            raise fault(missing_refusal(), int(gone.argmax()))

    def check_end(self, fault: Fault) -> None:
        """Reject a column that turns out to be invalid once all rows were read, because it holds only dates, or only words for missing
        values. Rows are numbered from the first row of the table.
        """
        if self.kind is None and self.refuses and self.doubtful is not None:
            raise fault(missing_refusal(self.doubtful[1]), self.doubtful[0])
        is_free = self.kind == "nominal" and not (self.is_named or self.is_typed or self.is_known)
        if is_free and self.levels and all(map(looks_like_date, self.levels)):
            raise fault(f"the values are dates such as {self._example()}, which cannot be features; {self._date_advice}", 0)

    def messages(self, form: str) -> list[str]:
        """Return messages about the column once all rows are read."""
        said = [unseen_message(self.name, self.unseen, form)] if self.unseen else []
        if self.padded:
            told = f"column {self.name!r}: values such as {_shown(self.padded)} are numbers here, without the zeros in front"
            said.append(f"{told}; {self._name_advice}")
        is_free = self.kind == "nominal" and not (self.is_known or self.is_named or self.is_typed)
        if is_free and len(self.levels) > max(_MANY, _NEARLY * self.n_rows):
            told = f"column {self.name!r} has {len(self.levels):,} categories in {self.n_rows:,} rows, nearly one for every row"
            said.append(f"{told}, such as {self._example()}; {self._notation_advice}")
        return said

    @property
    def _notation_advice(self) -> str:
        word = next(iter(self.levels))
        if as_number(word.replace(",", ".")) is not None:
            return "if these are numbers, " + (
                "turn them into numbers first" if self.is_frame else "say how they are written (--decimal ,)"
            )
        plain = "if these are numbers, write them plainly (1234.5, 1e-3); else " if any(map(str.isdigit, word)) else ""
        return plain + self._leave_advice

    @property
    def _leave_advice(self) -> str:
        rows = "" if self.is_frame else f", or let it name the rows (--id-column {self.name})"
        return f"leave it out{'' if self.is_frame else f' (--drop {self.name})'}{rows}"

    @property
    def _name_advice(self) -> str:
        how = (
            f"make the column a category (astype('category') of {self.name!r})" if self.is_frame else f"say so (--categorical {self.name})"
        )
        return f"if its values are names, {how}"

    @property
    def _date_advice(self) -> str:
        how = "" if self.is_frame else f" (--drop {self.name})"
        return f"leave the column out{how}, or turn it into numbers, such as days since a first one"

    @property
    def final_kind(self) -> ColumnKind:
        """Return the kind of the column once all rows are read; a column without any value is numeric."""
        return self.kind or "numeric"

    def sorted_levels(self) -> list[str]:
        """Return the sorted levels: in the order of the type if it is meaningful, else in numerical order if all are numbers, else
        alphabetically.
        """
        if self.is_known:
            return list(self.levels)
        order = list(self.order or ())
        rest = set(self.levels) - set(order)
        numbers = {word: as_number(word.strip()) for word in rest}
        if all(number is not None for number in numbers.values()):
            return [*order, *sorted(rest, key=lambda word: (numbers[word] or 0.0, word))]
        return [*order, *sorted(rest)]

    @property
    def is_final(self) -> bool:
        """Whether the numbers read are final, because there are no codes, and no words that turned out to be missing values."""
        return self.is_known or (self.final_kind != "nominal" and not self.n_undecided and not (self.kind is None and self.levels))

    def final(self, values: Floats, first: int) -> Floats:
        """Return the numbers that `read` returned for the rows from ``first`` on, with their codes replaced by the codes of the sorted
        levels.
        """
        if self.is_known:
            return values
        if self.final_kind != "nominal":
            unknown = self.n_undecided if self.kind is not None else self.n_rows
            return np.where(np.arange(first, first + len(values)) < unknown, np.nan, values) if first < unknown else values
        places = {level: float(k) for k, level in enumerate(self.sorted_levels())}
        table = np.array([*(places[level] for level in self.levels), np.nan])
        return table[np.where(np.isnan(values), len(self.levels), values).astype(np.int64)]

    def to_json(self) -> dict[str, Any]:
        """Return the learnt state, for the journal."""
        plain = ("kind", "order", "is_typed", "n_rows", "n_undecided", "n_bytes", "padded")
        return {**{name: getattr(self, name) for name in plain}, "levels": list(self.levels), "unseen": dict(self.unseen)}

    def restore(self, fields: dict[str, Any]) -> None:
        """Restore the state from the journal."""
        for name, value in fields.items():
            setattr(self, name, value)
        self.levels = {level: k for k, level in enumerate(fields["levels"])}
        self.unseen = Counter(fields["unseen"])


def unseen_message(column: str, counts: Mapping[str, int], form: str) -> str:
    """Return the message about levels of a column that an encoding does not know."""
    first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    levels = ", ".join(f"{level[:40]!r} ({count})" for level, count in first[:_SHOWN_LEVELS])
    more = f", and {len(first) - _SHOWN_LEVELS} more" if len(first) > _SHOWN_LEVELS else ""
    total = sum(counts.values())
    effect = "all of their features are zero" if form == "one-hot" else "every comparison with them is false"
    return f"column {column!r} has {total} values of levels that were not there at fit: {levels}{more}; {effect}"


def missing_refusal(word: str = "") -> str:
    """Return the message about a rejected missing value."""
    return f"{f'value {_shown(word)}' if word else 'the value'} is missing; {REFUSAL}"


def _kind_of(chunk: Chunk) -> ColumnKind | None:
    """Return the kind of column that the first value indicates; None if all values are missing, or may be missing."""
    if isinstance(chunk, Words):
        first = first_rows(chunk.codes, len(chunk.words))
        words = (str(chunk.words[k]) for k in in_order(first, len(chunk.codes)))
        word = next((word for word in words if not is_missing_word(word)), None)
        if word is None:
            return None
        return "numeric" if is_number_like(word) else "boolean" if truth_value(word) is not None else "nominal"
    assert isinstance(chunk, np.ndarray)
    if missing_in(chunk).all():
        return None
    return "boolean" if chunk.dtype.kind == "b" else "numeric"


def _shown(word: str) -> str:
    return repr(word if len(word) <= _SHOWN else f"{word[:_SHOWN]}…")
