"""Genotypes as input: PLINK's binary files (.bed, with .bim and .fam beside it), decoded by bed-reader.

A genotype is the number of copies of allele 1 of the .bim file: 0, 1, 2 or missing. A missing one becomes the mean 2p of its column, p the
frequency of the counted allele among the genotypes that are there.
"""

import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...encoding.chunks import is_missing
from ...errors import DataError, Foreign, SchemaError
from ...meta import ColumnScale, inverse_root
from ...source import GenotypeSource
from ..files import Panels
from ..labels import Target
from ..options import Options
from ..reading import RowSource, check_row_fits, check_width
from ..text.spool import Block, FileDigest
from .people import PeopleTable, choose_listed, count_lines, join_columns, read_bim, read_fam, read_phenotype
from .row_tables import array_digest

VARIANT_BYTES, PERSON_BYTES = 300, 500  # memory that a line of .bim and of .fam takes
PANEL_SHARE = 64  # genotypes decoded at a time, as a part of the budget
_MAGIC, _BY_PERSON = b"\x6c\x1b\x01", b"\x6c\x1b\x00"
# What bed-reader would read of .fam and .bim, and hold in memory.
_OF_PEOPLE = ("fid", "iid", "father", "mother", "sex", "pheno")
_UNREAD: Foreign = dict.fromkeys((*_OF_PEOPLE, "chromosome", "sid", "cm_position", "bp_position", "allele_1", "allele_2"))


class BedSource(RowSource):
    """A .bed file with its .bim and .fam. Rows are people, columns are variants, both in the order of the files. ``text_bytes``: memory for
    the texts beside the genotypes.

    Raises DataError if a file is missing or damaged, or the sizes do not fit; SchemaError if bed-reader is not installed.
    """

    format = "bed"
    n_cols: int  # pyright: ignore[reportIncompatibleVariableOverride] (known from the beginning)
    names: list[str]  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, path: Path, options: Options) -> None:
        if importlib.util.find_spec("bed_reader") is None:
            raise SchemaError(f"{path}: genotypes need bed-reader: install gramplane[genetics]")
        if options.missing not in ("refuse", "keep"):
            rule = "a missing genotype becomes the mean of its column, or stays missing with keep"
            raise SchemaError(f"missing is {options.missing!r} (--missing {options.missing}); {rule}: leave it out")
        bim, fam = path.with_suffix(".bim"), path.with_suffix(".fam")
        for beside in (bim, fam):
            if not beside.is_file():
                raise DataError(f"is missing; {path.name} needs a .bim and a .fam file of its name beside it", str(beside))
        self.name, self._path, self._options, self.digest, self._texts = str(path), path, options, FileDigest(path), (bim, fam)
        self.text_bytes = PERSON_BYTES * count_lines(fam) + VARIANT_BYTES * count_lines(bim)
        if 2 * self.text_bytes > options.budget:
            reason = f"what .bim and .fam say takes {self.text_bytes} bytes, more than half of the budget of {options.budget}"
            raise SchemaError(f"{path}: {reason}; raise the budget (--budget)")
        people, phenotypes = read_fam(fam)
        variants = read_bim(bim)
        self._shape = len(people), len(variants)
        _check_bytes(path, *self._shape)
        self._rows, self._columns = np.arange(len(people)), np.arange(len(variants))
        self.messages = messages = list[str]()
        if options.keep is not None:
            self._rows, told = choose_listed(options.keep, people, "people")
            messages += told
        if options.extract is not None:
            self._columns, told = choose_listed(options.extract, [(name,) for name in variants], "variants")
            messages += told
        self._guide = options.guide if isinstance(options.guide, GenotypeSource) else None
        self._is_swapped = np.zeros(len(self._columns), bool)
        if self._guide is not None:
            messages += self._follow(self._guide, variants)
        names, lines = list(variants), list(variants.values())
        self.names, self._lines = [names[k] for k in self._columns], [lines[k] for k in self._columns]
        self.people = [people[k] for k in self._rows]
        self.n_rows, self.n_cols = len(self._rows), len(self._columns)
        check_width(self.n_cols, options, self.name)
        check_row_fits(self.n_cols, options, self.name)
        self._tables, told = self._row_tables([phenotypes[k] for k in self._rows], fam)
        messages += told
        if options.drop_missing_targets and "y" in self._tables:
            messages += self._drop_people(np.array([is_missing(value) for value in self._tables["y"].tolist()], bool))
        self.tables, self.nbytes = list(self._tables), 4 * self.n_rows * self.n_cols

    def _row_tables(self, phenotypes: Sequence[str], fam: Path) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
        joined = [PeopleTable(path) for path in self._options.join]
        given = self._options.row_columns(column for table in joined for column in table.columns)
        named = {name: column for name, column in given.items() if isinstance(column, str)}
        columns, messages = join_columns(joined, list(dict.fromkeys(named.values())), self.people)
        tables = {name: columns[named[name]] if name in named else np.asarray(values) for name, values in given.items()}
        if "y" in named:
            tables["y"], coded = read_phenotype(tables["y"], self._options.task, f"column {named['y']!r}", self.name)
            messages += coded
        elif "y" not in tables and "y" not in self._options.follow:
            values, coded = read_phenotype(phenotypes, self._options.task, "phenotype", str(fam))
            if any(value is not None for value in values):
                tables["y"] = values
            else:
                coded = [f"nobody has a phenotype in {fam.name}: the store has no target"]
            messages += coded
        tables.setdefault("id", np.array([f"{family} {name}" for family, name in self.people], object))
        for name, values in tables.items():
            self.check_table(name, values.shape, self.n_rows)
        return tables, messages

    def _drop_people(self, without: npt.NDArray[np.bool_]) -> list[str]:
        """Leave out people without a target before anything is counted: their covariates may be missing, and no frequency includes them.
        Return messages.
        """
        if not without.any() or without.all():
            return []
        self._rows, self.people = self._rows[~without], [self.people[k] for k in np.flatnonzero(~without)]
        self.n_rows, self._tables = len(self.people), {name: values[~without] for name, values in self._tables.items()}
        return [f"{np.count_nonzero(without):,} people without a target are left out"]

    def _follow(self, guide: GenotypeSource, variants: dict[str, str]) -> list[str]:
        """Choose the variants of the training data, in their order; return messages. Raises DataError if one is missing or has other
        alleles.
        """
        known, places = guide.names or [], {name: k for k, name in enumerate(variants)}
        missing = [name for name in known if name not in places]
        if missing:
            more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
            raise DataError(f"has no variant {missing[0]}{more}, which the training data have", self.name)
        self._columns, self._is_swapped = np.array([places[name] for name in known], np.int64), np.zeros(len(known), bool)
        for k, (name, facts) in enumerate(zip(known, guide.facts, strict=True)):
            here, there = variants[name].split("\t")[2:], facts.split("\t")[2:4]
            if not _agree(here, there):
                if not _agree(here[::-1], there):
                    reason = f"variant {name} has the alleles {'/'.join(here)}, but {'/'.join(there)} in the training data"
                    raise DataError(f"{reason}; name the alleles of one strand in both, or leave the variant out", self.name)
                self._is_swapped[k] = True
        extra = len(variants) - len(known)
        return [f"{extra:,} variants that are not in the training data are left out"] if extra else []

    def identity(self) -> str | None:
        """Return an identity computed from the three files, the choice of people and variants, and the row tables."""
        assert self.digest is not None
        files = [self.digest.value(), *(FileDigest(path).value() for path in self._texts)]
        chosen = [("rows", self._rows), ("columns", self._columns), *self._tables.items()]
        return f"bed:{hashlib.sha256(' '.join([*files, array_digest(chosen)]).encode()).hexdigest()[:32]}"

    def fault(self, reason: str, row: int, column: int | None = None) -> DataError:
        """Return the error for a person and a variant, counted from zero."""
        variant = "" if column is None else f", variant {self.names[column]}"
        return DataError(f"person {' '.join(self.people[row])}{variant}: {reason}", self.name)

    def _panels(self) -> Iterator[npt.NDArray[np.int8]]:
        """Yield the genotypes of some variants at a time, (n_rows, k); missing ones are negative."""
        from bed_reader import open_bed

        width = max(1, self._options.budget // (PANEL_SHARE * max(1, self.n_rows)))
        try:
            bed = open_bed(self._path, *self._shape, properties=_UNREAD)
            for lo in range(0, self.n_cols, width):
                chosen = self._rows, self._columns[lo : lo + width]
                panel = bed.read(index=chosen, dtype="int8", order="C", num_threads=1)
                swapped = self._is_swapped[lo : lo + width]
                panel[:, swapped] = np.where(panel[:, swapped] < 0, panel[:, swapped], 2 - panel[:, swapped])
                yield panel
        except ValueError as error:
            raise DataError(f"cannot be read: {error}", self.name) from error

    @cached_property
    def _sums(self) -> npt.NDArray[np.int64]:
        return np.concatenate([_sums_of(panel) for panel in self._panels()], axis=1)

    @cached_property
    def _frequencies(self) -> npt.NDArray[np.float64]:
        if self._guide is not None:
            return np.array([float(facts.rpartition("\t")[2]) for facts in self._guide.facts])
        known, copies, _ = self._sums
        return np.divide(copies, 2.0 * known, out=np.full(self.n_cols, np.nan), where=known > 0)

    @property
    def _fill(self) -> npt.NDArray[np.float32]:
        return np.nan_to_num(2.0 * self._frequencies).astype(np.float32)

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield some rows at a time, from panels of variants on scratch."""
        assert self.scratch is not None
        panels, sums = Panels(self.scratch.path("panels.bin"), self.n_rows), []
        for panel in self._panels():
            panels.add(iter([panel]), panel.shape[1], panel.dtype)
            sums.append(_sums_of(panel))
        self._sums = np.concatenate(sums, axis=1)
        fill = np.full(self.n_cols, np.nan, np.float32) if options.missing == "keep" else self._fill
        step = max(1, options.budget // 16 // (8 * self.n_cols))
        for lo in range(0, self.n_rows, step):
            part = panels[lo : lo + step]
            yield self.with_tables(np.where(part < 0, fill, part), self._tables, lo, target)

    def column_facts(self) -> list[str]:
        """Return chromosome, position, both alleles and the frequency of the counted one for each variant, with tabs between them. Those of
        the training data stay as they are.
        """
        if self._guide is not None:
            return self._guide.facts
        return [f"{line}\t{frequency!r}" for line, frequency in zip(self._lines, self._frequencies.tolist(), strict=True)]

    def factors(self) -> ColumnScale | None:
        """Return the factors of ``scale="standard"``: mean and deviation of the genotypes that are there. A missing one becomes 0."""
        if self._options.scale != "standard":
            return None
        known, copies, squares = self._sums
        variance = np.divide(squares * known - copies**2, known.astype(np.float64) ** 2, out=np.zeros(self.n_cols), where=known > 0)
        return ColumnScale("standard", inverse_root(variance), self._fill.astype(np.float64))


def _check_bytes(path: Path, people: int, variants: int) -> None:
    """Check the first bytes of a .bed file, and its size against the numbers of people and variants."""
    with path.open("rb") as file:
        magic = file.read(len(_MAGIC))
    if magic == _BY_PERSON:
        raise DataError("lists the genotypes person by person, as old versions of PLINK did; convert it with plink --make-bed", str(path))
    if magic != _MAGIC:
        raise DataError(f"is no .bed file of PLINK: it begins with the bytes {magic.hex(' ')}, not {_MAGIC.hex(' ')}", str(path))
    size, need = path.stat().st_size, len(_MAGIC) + variants * -(-people // 4)
    if size != need:
        what = f"{variants:,} variants (.bim) of {people:,} people (.fam) take {need:,} bytes"
        raise DataError(f"has {size:,} bytes, but {what}; the three files do not belong together, or one is cut short", str(path))


def _agree(here: Sequence[str], there: Sequence[str]) -> bool:
    """Return whether two pairs of alleles are the same. PLINK writes 0 for an allele that nobody has."""
    return all(a == b or "0" in (a, b) for a, b in zip(here, there, strict=True))


def _sums_of(panel: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    """Return, for each variant, the number of its genotypes that are there, their sum and the sum of their squares, (3, k)."""
    known, ones, twos = (np.count_nonzero(mask, axis=0) for mask in (panel >= 0, panel == 1, panel == 2))
    return np.array([known, ones + 2 * twos, ones + 4 * twos], np.int64)
