"""Reading of SVMlight text: byte ranges in parallel for plain files, one stream for compressed ones and standard input."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ...text.open_text import is_plain, open_file, open_text
from ..labels import Target
from ..options import Options, Progress
from ..reading import ColumnCounts, Reading, Source, recount_columns
from ..scratch import Scratch
from .lines import Rules
from .spool import PIECE, Block, FileDigest, Handle, Part, PutBlock, Window, count_lines, hold_block, line_start
from .svmlight import LineParser

_MAX_INDEX = 2**31 - 2
_TEXT_TO_MEMORY = 8  # bytes of blocks, buckets and arrays that a byte of text may become


@dataclass
class RangeRecord:
    """A range of text that was parsed: where it ends and what it contained (for a stream, also the number of its lines)."""

    index: int
    end: int
    lines: int
    crc: int
    lowest: int
    highest: int
    numbers: list[float]
    blocks: list[dict[str, Any]]

    @classmethod
    def noted(cls, scratch: Scratch) -> "list[RangeRecord]":
        """Return the ranges in the journal."""
        return [cls(**{name: value for name, value in note.items() if name != "step"}) for note in scratch.notes("range")]


class SvmlightSource(Source):
    """SVMlight text from a file, plain or compressed, or from standard input ("-")."""

    format = "svmlight"
    sparse = True

    def __init__(self, source: str | Path, encoding: str | None = None) -> None:
        self.encoding = encoding
        self.stdin = source == "-"
        self.path = Path(source)
        self.name = "<stdin>" if self.stdin else str(source)
        regular = not self.stdin and self.path.is_file()
        self.packed = regular and not is_plain(self.path, encoding)
        self.digest = FileDigest(self.path) if regular else None

    @property
    def memory(self) -> int | None:
        """Upper bound of the bytes that the blocks, buckets and arrays of the text take, in memory or on scratch; None if the length of the
        text is not known in advance.
        """
        return None if self.digest is None or self.packed else _TEXT_TO_MEMORY * self.digest.size

    def hint(self) -> str | None:
        """Return a cheap identity used for resuming; ranges of a plain file have their own checksums."""
        if self.digest is None:
            return None
        return self.digest.value() if self.packed else f"file:{self.digest.size}"

    def read(self, scratch: Scratch, options: Options, target: Target, jobs: int, progress: Progress) -> Reading:
        reading = Reading(target=target, counts=ColumnCounts())
        reader = _Reader(self, scratch, options, reading, progress)
        if self.digest is None or self.packed:
            reader.read_stream()
        else:
            reader.read_ranges(self.digest, jobs)
        return reading

    def parser(self, options: Options, target: Target) -> LineParser:
        low = 1 if options.zero_based == "no" else 0
        allowed = np.zeros(0) if options.no_labels else target.allowed_numbers()
        if options.n_features is not None:
            high, why = options.n_features - (options.zero_based == "yes"), f"exceeds the {options.n_features} features (--n-features)"
        else:
            high = min(_MAX_INDEX, options.budget // 4)
            need = "a table of column counts larger than the budget" if high < _MAX_INDEX else "more than 2^31 columns"
            why = f"would need {need}; correct it, or give --n-features (or a larger --budget)"
        rules = Rules(low, high, options.dtype == "float32", options.qid == "ignore", allowed, not options.no_labels)
        text = max(1 << 20, options.budget // 16)
        return LineParser(self.name, rules, why, text, max(text, options.budget // 8))


class _Reader:
    """Reads a text in steps of 64 MiB. Steps in the journal of a killed ingest are not read again."""

    def __init__(self, source: SvmlightSource, scratch: Scratch, options: Options, reading: Reading, progress: Progress) -> None:
        self.source, self.scratch, self.options, self.reading, self.progress = source, scratch, options, reading, progress
        self.held = source.memory is not None and source.memory <= options.budget
        self._stop = threading.Event()
        self._tables: dict[int, ColumnCounts] = {}

    def read_ranges(self, digest: FileDigest, jobs: int) -> None:
        """Read a plain file; threads parse its ranges separately, because the parser holds no interpreter lock."""
        ready = RangeRecord.noted(self.scratch)
        if any(digest.piece(record.index) != record.crc for record in ready):
            self.scratch.restart()
            ready = []
        self._take_up(ready)
        with ThreadPoolExecutor(max(1, jobs)) as pool:
            try:
                for record, handles in pool.map(lambda index: self._read_range(digest, index), range(len(ready), digest.n_pieces)):
                    self._take(record, handles)
                    self.progress(min(digest.size, (record.index + 1) * PIECE), digest.size, "read")
            except BaseException:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        assert self.reading.counts is not None
        for table in self._tables.values():
            self.reading.counts.merge(table)

    def _read_range(self, digest: FileDigest, index: int) -> tuple[RangeRecord, list[Handle]]:
        if self.held:
            return self._parse_range(digest, index, hold_block)
        with Part(self.scratch.path(f"part-{index:06d}.bin")) as part:
            record, handles = self._parse_range(digest, index, part)
        # Now, while the system still has the range in memory.
        record.crc = digest.piece(index)
        return record, handles

    def _parse_range(self, digest: FileDigest, index: int, put: PutBlock) -> tuple[RangeRecord, list[Handle]]:
        table = self._tables.setdefault(threading.get_ident(), ColumnCounts())
        # The labels of a range are its own until it is taken.
        met = Target(self.reading.target.task, self.reading.target.declared)
        parser = self.source.parser(self.options, met)
        with open_file(self.source.path) as file:
            lo, hi = (line_start(file, number * PIECE, digest.size) for number in (index, index + 1))
            blocks = parser.blocks(Window(file, lo, hi), lambda: count_lines(self.source.path, lo))
            handles: list[Handle] = []
            for block, _, _ in self._count(blocks, parser, table, met):
                if self._stop.is_set():
                    break
                handles.append(put(block))
        return RangeRecord(index, hi, 0, 0, parser.lowest, parser.highest, sorted(met.numbers), []), handles

    def read_stream(self) -> None:
        """Read a compressed file or standard input; a part file is closed after every 64 MiB of text."""
        ready = RangeRecord.noted(self.scratch)
        self._take_up(ready)
        if self.scratch.notes("read"):
            return
        origin, before = (ready[-1].end, ready[-1].lines) if ready else (0, 0)
        opened = open_text("-" if self.source.stdin else self.source.path, self.source.name, self.source.encoding)
        try:
            # Text that was parsed before may count a line end that the last line lacks.
            buffer, left = memoryview(bytearray(1 << 20)), origin
            while left > 0 and (got := opened.stream.readinto(buffer[:left])):
                left -= got
            parser = self.source.parser(self.options, self.reading.target)
            blocks = parser.blocks(opened.stream, lambda: before)
            index, end, lines, is_there = len(ready), origin, before, True
            while is_there:
                met, stored, start, is_there = Target(self.reading.target.task, self.reading.target.declared), [], end, False
                with Part(self.scratch.path(f"part-{index:06d}.bin")) as part:
                    for block, at, passed in self._count(blocks, parser, self.reading.counts, met):
                        stored.append(part(block))
                        end, lines = origin + at, before + passed
                        self.progress(opened.done(), self.source.digest.size if self.source.digest else opened.done(), "read")
                        if is_there := end - start >= PIECE:
                            break
                self._take(RangeRecord(index, end, lines, 0, parser.lowest, parser.highest, sorted(met.numbers), []), stored)
                index += 1
        finally:
            opened.stream.close()
        self.scratch.note("read")

    def _count(
        self, blocks: Iterator[tuple[Block, int, int]], parser: LineParser, table: ColumnCounts | None, met: Target
    ) -> Iterator[tuple[Block, int, int]]:
        """Yield the given blocks, after recording the columns and labels in each block."""
        assert table is not None
        for block, at, lines in blocks:
            table.add(block["cols"], parser.highest)
            if "y" in block:
                met.add_numbers(block["y"], self._fault)
            yield block, at, lines

    def _fault(self, reason: str, row: int) -> DataError:
        return DataError(reason, self.source.name)

    def _take_up(self, ready: list[RangeRecord]) -> None:
        for record in ready:
            self._meet(record, [Handle.from_json(self.scratch.folder, fields) for fields in record.blocks])
        recount_columns(self.reading)

    def _take(self, record: RangeRecord, handles: list[Handle]) -> None:
        self._meet(record, handles)
        if not self.held:
            record.blocks = [handle.to_json() for handle in handles]
            self.scratch.note("range", **asdict(record))

    def _meet(self, record: RangeRecord, handles: list[Handle]) -> None:
        self.reading.meet(record.lowest, record.highest)
        self.reading.target.merge(record.numbers, self._fault)
        self.reading.handles.extend(handles)


def default_jobs(path: Path) -> int:
    """Return the number of threads worth using for a file: at most two, because one parser nearly fills the memory bandwidth of a small
    computer.
    """
    large = path.is_file() and path.stat().st_size > PIECE
    return min(2, os.cpu_count() or 1) if large else 1
