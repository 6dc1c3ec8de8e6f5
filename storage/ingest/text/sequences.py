"""Sequences for string kernels: reads FASTA, or one string per line, with labels, into a store of sequences.

A store of sequences is a block store without columns: it has rows, target and tables as usual, and the concatenated letters
(`BlockStore.sequences`).
"""

import io
import re
from collections.abc import Iterator
from collections.abc import Sequence as Many
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from ...blocks.store import BlockStore
from ...errors import DataError, SchemaError, UserData
from ...layout import plan_dense
from ...text.open_text import is_plain, open_text
from ..build import Job, finish_store
from ..labels import Fault, Target
from ..options import Options, Progress
from ..reading import Reading, Source, read_blocks
from ..scratch import Scratch
from ..tables.row_tables import array_digest, row_tables
from .spool import Block, FileDigest

_FOREIGN = re.compile(rb"[^A-Za-z*-]")
_BLOCK = 1 << 22
_TEXT_TO_MEMORY = 4  # bytes that a byte of text may take until the store is written


class Sequence(NamedTuple):
    """One sequence: its letters, its attributes ("label", "task", …), and the line on which it begins."""

    letters: bytes
    words: dict[str, str]
    line: int


class SequenceSource(Source):
    """FASTA or one string per line, from a file, plain or compressed, or from standard input ("-").

    FASTA: a header line ``>name key=value …`` and lines of letters; the label is the word ``label=VALUE`` of the header (or another key,
    given as ``target``). Strings: each line is a string, with a label and a tab before it in all lines or in none. Raises SchemaError for
    options that do not apply to sequences.
    """

    def __init__(self, source: str | Path, form: str, options: Options) -> None:
        self.stdin = source == "-"
        self.path, self.format = Path(source), form
        self.name = "<stdin>" if self.stdin else str(source)
        self.digest = FileDigest(self.path) if not self.stdin and self.path.is_file() else None
        self._tables, self._encoding = _table_keys(options, form), options.encoding
        _refuse_options(options, self.name)

    def read(self, scratch: Scratch, options: Options, target: Target, jobs: int, progress: Progress) -> Reading:
        small = self.format == "array" or (self.memory is not None and self.memory <= options.budget)
        return read_blocks(Reading(target=target, n_cols=0), self._blocks(options, target, progress), scratch, small)

    @property
    def memory(self) -> int | None:
        """Upper bound of the memory in bytes that the text takes until the store is written; None if the text's length is not known yet."""
        return None if self.digest is None or not is_plain(self.path, self._encoding) else _TEXT_TO_MEMORY * self.digest.size

    def _blocks(self, options: Options, target: Target, progress: Progress) -> Iterator[Block]:
        opened = open_text("-" if self.stdin else self.path, self.name, self._encoding)
        try:
            stream = io.BufferedReader(opened.stream, 1 << 20)  # held by this name: it closes what it reads when it goes
            for block in self._check_blocks(_PARSERS[self.format](stream, self.name, options.budget // 8), target):
                yield block
                progress(opened.done(), self.digest.size if self.digest else opened.done(), "read")
        finally:
            opened.stream.close()

    def _check_blocks(self, sequences: Iterator[Sequence], target: Target) -> Iterator[Block]:
        first, array_names = 0, None
        for piece in _group_sequences(sequences):
            block = self._block(piece, first, target)
            array_names = array_names or block.keys()
            if block.keys() != array_names:
                names = ", ".join(sorted(block.keys() ^ array_names))
                raise DataError(f"either the sequences before this line or those from here on lack {names}", self.name, piece[0].line)
            yield block
            first += len(piece)
        for name, values in self._tables.items():
            if not isinstance(values, str) and len(values) != first:
                raise SchemaError(f"{name} has {len(values)} entries; {self.name} has {first} sequences")

    def _block(self, sequences: list[Sequence], first: int, target: Target) -> Block:
        def fault(reason: str, row: int) -> DataError:
            return DataError(reason, self.name, sequences[row].line)

        parts: dict[str, Any] = {}
        for name, key in self._tables.items():
            values = _key_values(sequences, key, fault) if isinstance(key, str) else np.asarray(key[first : first + len(sequences)])
            if values is not None:
                parts[name] = values
        letters = np.frombuffer(b"".join(sequence.letters for sequence in sequences), np.uint8)
        lengths = np.array([len(sequence.letters) for sequence in sequences], dtype=np.int64)
        return {"letters": letters, "lengths": lengths, **row_tables(parts, target, fault)}


class StringArraySource(SequenceSource):
    """Texts in memory, and vectors "y", "task" and "weight"."""

    def __init__(self, texts: Many[str], tables: dict[str, Any], options: Options) -> None:
        self.name, self.format, self.digest = f"<{type(texts).__name__}>", "array", None
        self._texts, self._tables = texts, tables
        _refuse_options(options, self.name)
        for row, text in enumerate(texts):
            if not isinstance(text, str) or not text:
                raise DataError(f"row {row + 1}: {text!r} is not a text with at least one character", self.name)

    def identity(self) -> str | None:
        return array_digest([("texts", np.array(self._texts, dtype=object)), *self._tables.items()])

    def _blocks(self, options: Options, target: Target, progress: Progress) -> Iterator[Block]:
        yield from self._check_blocks((Sequence(text.encode(), {}, row) for row, text in enumerate(self._texts, 1)), target)


def are_texts(x: UserData) -> bool:
    """Whether an object is a list or vector of texts."""
    if isinstance(x, np.ndarray):
        return x.ndim == 1 and (x.dtype.kind == "U" or (x.dtype.kind == "O" and x.size > 0 and isinstance(x[0], str)))
    return isinstance(x, list) and bool(x) and isinstance(x[0], str)


def text_source(source: UserData, options: Options) -> StringArraySource | None:
    """Open a list of texts, or a pair of texts and target; None for anything else."""
    columns = options.row_columns()
    x, y = source if isinstance(source, tuple) and len(source) == 2 else (source, None)
    if not are_texts(x):
        return None
    if any(isinstance(values, str) for values in columns.values()) or (y is not None and "y" in columns):
        raise SchemaError("texts in memory have no column names, and at most one target: pass (texts, y), or pass the values as target")
    return StringArraySource(x, columns if y is None else {**columns, "y": y}, options)


def _table_keys(options: Options, form: str) -> dict[str, Any]:
    """Return the source of each row table: a key of the header, or an array."""
    columns = options.row_columns()
    if form == "strings":
        named = [name for name, values in columns.items() if isinstance(values, str)]
        if named:
            raise SchemaError(f"{named[0]} column is {columns[named[0]]!r}, but strings have no columns; write LABEL, a tab and the string")
    followed = {name: key for name, key in options.follow.items() if isinstance(key, str)}
    return {"y": "label", **(followed if form == "fasta" else {}), **columns}


def _refuse_options(options: Options, name: str) -> None:
    for option, plain in (("n_features", None), ("scale", "none"), ("layout", "columns"), ("missing", "refuse")):
        if getattr(options, option) != plain:
            named = "n_features (or the number of columns of the 'like' store)" if option == "n_features" else option
            raise SchemaError(f"{named} is {getattr(options, option)!r}, but {name} holds sequences, which have no features")


def _group_sequences(sequences: Iterator[Sequence]) -> Iterator[list[Sequence]]:
    piece, nbytes = [], 0
    for sequence in sequences:
        piece.append(sequence)
        nbytes += len(sequence.letters) + 64
        if nbytes >= _BLOCK:
            yield piece
            piece, nbytes = [], 0
    if piece:
        yield piece


def _key_values(found: list[Sequence], key: str, fault: Fault) -> npt.NDArray[Any] | None:
    """Return the values of a key as texts; None if no sequence of the piece has it."""
    values = [sequence.words.get(key) for sequence in found]
    if all(value is None for value in values):
        return None
    if None in values:
        row = values.index(None)
        other = next(sequence.line for sequence in found if key in sequence.words)
        raise fault(f"the sequence has no {key}, but that of line {other} has one", row)
    return np.array(values, dtype=object)


def _numbered_lines(stream: BinaryIO, name: str, limit: int) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each line, without the line end."""
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise DataError(f"the line has more than {limit} bytes, an eighth of the budget (--budget)", name, number)
        yield number, line.rstrip(b"\r\n")


def parse_fasta(stream: BinaryIO, name: str, limit: int) -> Iterator[Sequence]:
    """Yield the sequences of FASTA text.

    Raises DataError for letters before the first header, characters that are not letters, and sequences that are empty or longer than
    ``limit`` bytes.
    """
    head, at, parts, size = None, 0, [], 0
    for number, line in _numbered_lines(stream, name, limit):
        if line.startswith(b">"):
            if head is not None:
                yield _make_sequence(head, parts, at, name)
            pairs = [word.partition("=") for word in line.decode().split()[1:]]
            head = {key: value for key, mark, value in pairs if mark and key and value}
            at, parts, size = number, [], 0
        elif line.strip() and not line.startswith(b";"):
            if head is None:
                raise DataError("letters before the first header; a sequence begins with a line '>name'", name, number, 1)
            parts.append(_check_letters(line, name, number))
            size += len(parts[-1])
            if size > limit:
                raise DataError(f"the sequence has more than {limit} letters, an eighth of the budget (--budget)", name, at)
    if head is not None:
        yield _make_sequence(head, parts, at, name)


def _check_letters(line: bytes, name: str, number: int) -> bytes:
    letters = line.rstrip()
    bad = _FOREIGN.search(letters)
    if bad:
        raise DataError(f"{bad.group()!r} is not a letter, '*' or '-'", name, number, bad.start() + 1)
    return letters


def _make_sequence(words: dict[str, str], parts: list[bytes], line: int, name: str) -> Sequence:
    if not parts:
        raise DataError("the sequence has no letters", name, line)
    return Sequence(b"".join(parts), words, line)


def parse_strings(stream: BinaryIO, name: str, limit: int) -> Iterator[Sequence]:
    """Yield one string per line, with the label before its tab.

    Raises DataError for empty lines inside the text, more than one tab, text that is not UTF-8, or labels in some lines only.
    """
    labelled, blank = None, 0
    for number, line in _numbered_lines(stream, name, limit):
        if not line:
            blank = blank or number
            continue
        if blank:
            raise DataError("the line is empty; a string has at least one character", name, blank)
        label, tab, letters = line.rpartition(b"\t")
        if labelled not in (None, bool(tab)):
            rule = "a label and a tab, as the first one has" if labelled else "no tab, since the first one has none"
            raise DataError(f"the line must have {rule}", name, number)
        labelled = bool(tab)
        if b"\t" in label or not letters or (tab and not label.strip()):
            raise DataError("the line must be LABEL, one tab and a string", name, number)
        yield Sequence(letters, {"label": label.decode().strip()} if tab else {}, number)


_PARSERS = {"fasta": parse_fasta, "strings": parse_strings}


def build_sequences(job: Job) -> BlockStore:
    letters = job.column("letters", sum(handle.shape("letters")[0] for handle in job.spool.handles), np.uint8)
    at = 0
    for handle in job.spool.handles:
        letters.put(at, handle.get("letters"))
        at += handle.shape("letters")[0]
        job.progress(at, letters.size, "letters")
    meta = job.meta("dense", 0, "float32")
    writer = job.writer(meta, plan_dense(meta.n_rows, 0, meta.itemsize), None)
    writer.write_sequences(letters, job.ends("ends", "lengths"))
    return finish_store(job, writer, job.tables(meta))
