"""Reading SVMlight text: byte ranges in parallel for plain files, one stream for compressed ones and standard input."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
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
from .spool import PIECE, FileDigest, Handle, Part, PutBlock, Window, count_lines, hold_block, line_start
from .svmlight import LineParser

_MAX_INDEX = 2**31 - 2
_TEXT_TO_MEMORY = 8  # bytes of blocks, buckets and arrays that a byte of text may become


@dataclass
class RangeRecord:
    """A range of text that was parsed: where it ends and what it held (its lines, for a stream only)."""

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
        """Ranges that the journal holds."""
        return [cls(**{name: value for name, value in note.items() if name != "step"}) for note in scratch.notes("range")]

    def handles(self, scratch: Scratch) -> "list[Handle]":
        """Its blocks in the scratch folder."""
        return [Handle.from_json(scratch.folder, fields) for fields in self.blocks]


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
        """Bytes of blocks, buckets and arrays that the text may become, in memory or on scratch; None if its end is not known before."""
        return None if self.digest is None or self.packed else _TEXT_TO_MEMORY * self.digest.size

    def hint(self) -> str | None:
        """Cheap identity for resuming; ranges of a plain file carry their own checksums."""
        if self.digest is None:
            return None
        return self.digest.value() if self.packed else f"file:{self.digest.size}"

    def read(self, scratch: Scratch, options: Options, target: Target, jobs: int, progress: Progress) -> Reading:
        """Parse everything."""
        reading = Reading(target=target, counts=ColumnCounts())
        if self.digest is None or self.packed:
            _StreamReader(self, scratch, options, reading, progress).run()
        else:
            _RangeReader(self, self.digest, scratch, options, reading, progress).run(jobs)
        return reading

    def parser(self, options: Options, target: Target) -> LineParser:
        """Make a parser for these options."""
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


class _RangeReader:
    """Plain files: every 64 MiB of text are parsed on their own, by threads (the parser holds no interpreter lock)."""

    def __init__(
        self, source: SvmlightSource, digest: FileDigest, scratch: Scratch, options: Options, reading: Reading, progress: Progress
    ) -> None:
        self.source, self.digest, self.scratch, self.options, self.reading = source, digest, scratch, options, reading
        self.progress = progress
        self.held = (source.memory or 0) <= options.budget
        self._stop = threading.Event()
        self._tables: dict[int, ColumnCounts] = {}

    def run(self, jobs: int) -> None:
        """Read the ranges that the journal does not have."""
        done = self._take_up()
        with ThreadPoolExecutor(max(1, jobs)) as pool:
            try:
                for record, handles in pool.map(self._read_range, range(done, self.digest.n_pieces)):
                    self._take(record, handles)
            except BaseException:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        assert self.reading.counts is not None
        for table in self._tables.values():
            self.reading.counts.merge(table)

    def _take(self, record: RangeRecord, handles: list[Handle]) -> None:
        _take_range(self.reading, record, handles, self.source.name)
        if not self.held:
            record.blocks = [handle.to_json() for handle in handles]
            self.scratch.note("range", **asdict(record))
        self.progress(min(self.digest.size, (record.index + 1) * PIECE), self.digest.size, "read")

    def _take_up(self) -> int:
        """Take over the ranges read by a killed ingest, if the file still holds the same bytes there; how many."""
        ready = RangeRecord.noted(self.scratch)
        if any(self.digest.piece(record.index) != record.crc for record in ready):
            self.scratch.restart()
            return 0
        for record in ready:
            _take_range(self.reading, record, record.handles(self.scratch), self.source.name)
        recount_columns(self.reading)
        return len(ready)

    def _read_range(self, index: int) -> tuple[RangeRecord, list[Handle]]:
        if self.held:
            return self._read(index, hold_block)
        with Part(self.scratch.path(_part_name(index))) as part:
            record, handles = self._read(index, part)
        # Now, while the system still has the range in memory.
        record.crc = self.digest.piece(index)
        return record, handles

    def _read(self, index: int, sink: PutBlock) -> tuple[RangeRecord, list[Handle]]:
        table = self._tables.setdefault(threading.get_ident(), ColumnCounts())
        met = Target(self.reading.target.task, self.reading.target.declared)
        parser, handles, fault = self.source.parser(self.options, met), [], _plain_fault(self.source.name)
        with open_file(self.source.path) as file:
            lo, hi = (line_start(file, number * PIECE, self.digest.size) for number in (index, index + 1))
            for block, _, _ in parser.blocks(Window(file, lo, hi), lambda: count_lines(self.source.path, lo)):
                if self._stop.is_set():
                    break
                table.add(block["cols"], parser.highest)
                if "y" in block:
                    met.add_numbers(block["y"], fault)
                handles.append(sink(block))
        return RangeRecord(index, hi, 0, 0, parser.lowest, parser.highest, sorted(met.numbers), []), handles


class _StreamReader:
    """Compressed files and standard input: one reader; a part file is closed after every 64 MiB of text."""

    def __init__(self, source: SvmlightSource, scratch: Scratch, options: Options, reading: Reading, progress: Progress) -> None:
        self.source, self.scratch, self.options, self.reading, self._progress = source, scratch, options, reading, progress
        self.end = self.lines = self.index = 0

    def run(self) -> None:
        """Read what the journal does not have."""
        for record in RangeRecord.noted(self.scratch):
            _take_range(self.reading, record, record.handles(self.scratch), self.source.name)
            self.end, self.lines, self.index = record.end, record.lines, record.index + 1
        recount_columns(self.reading)
        if self.scratch.notes("read"):
            return
        opened = open_text("-" if self.source.stdin else self.source.path, self.source.name, self.source.encoding)
        try:
            # Text that was parsed before may count a line end that the last line lacks.
            buffer, left = memoryview(bytearray(1 << 20)), self.end
            while left > 0 and (got := opened.stream.readinto(buffer[:left])):
                left -= got
            parser = self.source.parser(self.options, self.reading.target)
            origin, before = self.end, self.lines
            blocks = parser.blocks(opened.stream, lambda: before)
            while self._part(blocks, parser, origin, before, opened.done):
                self.index += 1
        finally:
            opened.stream.close()
        self.scratch.note("read")

    def _part(self, blocks: Iterator[Any], parser: LineParser, origin: int, before: int, done: Callable[[], int]) -> bool:
        """Fill one part file; False at the end of the text."""
        assert self.reading.counts is not None
        stored, start = [], self.end
        met = Target(self.reading.target.task, self.reading.target.declared)
        with Part(self.scratch.path(_part_name(self.index))) as part:
            for block, at, lines in blocks:
                self.reading.counts.add(block["cols"], parser.highest)
                if "y" in block:
                    met.add_numbers(block["y"], _plain_fault(self.source.name))
                stored.append(part(block))
                self.end, self.lines = origin + at, before + lines
                total = self.source.digest.size if self.source.digest else done()
                self._progress(done(), total, "read")
                if self.end - start >= PIECE:
                    break
            else:
                start = -1
        blocks_json = [handle.to_json() for handle in stored]
        record = RangeRecord(self.index, self.end, self.lines, 0, parser.lowest, parser.highest, sorted(met.numbers), blocks_json)
        _take_range(self.reading, record, stored, self.source.name)
        self.scratch.note("range", **asdict(record))
        return start >= 0


def _part_name(index: int) -> str:
    return f"part-{index:06d}.bin"


def _plain_fault(name: str) -> Callable[[str, int], DataError]:
    return lambda reason, row: DataError(reason, name)


def _take_range(reading: Reading, record: RangeRecord, handles: Iterable[Handle], name: str) -> None:
    reading.meet(record.lowest, record.highest)
    reading.target.merge(record.numbers, _plain_fault(name))
    reading.handles.extend(handles)


def default_jobs(path: Path) -> int:
    """Threads worth using for a file: two at most, since one parser nearly fills the memory bandwidth of a small machine."""
    large = path.is_file() and path.stat().st_size > PIECE
    return min(2, os.cpu_count() or 1) if large else 1
