"""Texts beside a genotype file: its people (.fam) and its variants (.bim), lists of some of them, and tables about the people."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...encoding.record import as_number, is_missing_word
from ...errors import DataError, SchemaError
from ...text.open_text import open_text

Person = tuple[str, str]  # family and individual: FID and IID
Texts = npt.NDArray[np.object_]  # a text for every person; None where it is missing

KEYS = ("FID", "IID")  # the columns by which tables are joined
_FAM = ("FID", "IID", "father", "mother", "sex", "phenotype")
_BIM = ("chromosome", "variant id", "centimorgans", "position", "allele 1", "allele 2")


@contextmanager
def _open_lines(path: Path) -> Iterator[io.TextIOWrapper]:
    with io.TextIOWrapper(io.BufferedReader(open_text(path, str(path)).stream), "utf-8", newline="\n") as text:
        yield text


def _read_cells(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each line of a text with blanks between cells."""
    with _open_lines(path) as text:
        for number, line in enumerate(text, 1):
            cells = line.split()
            if len(cells) != len(columns):
                raise DataError(f"the line has {len(cells)} cells; expected are {', '.join(columns)}", str(path), number)
            yield number, cells


def count_lines(path: Path) -> int:
    """Return the number of lines of a text, of which it holds a part at a time."""
    with path.open("rb") as file:
        return sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b""))


def read_fam(path: Path) -> tuple[list[Person], list[str]]:
    """Return the people of a .fam file and their phenotypes. Raises DataError, with the line, if an IID is missing or a person occurs
    twice.
    """
    people, phenotypes = dict[Person, int](), list[str]()
    for number, (family, name, _, _, _, phenotype) in _read_cells(path, _FAM):
        if name in ("0", "."):
            raise DataError(f"the IID is missing ({name}); every person needs one", str(path), number)
        first = people.setdefault((family, name), number)
        if first != number:
            raise DataError(f"person {family} {name} occurs twice, first in line {first}; FID and IID must be unique", str(path), number)
        phenotypes.append(phenotype)
    return list(people), phenotypes


def read_bim(path: Path) -> dict[str, str]:
    """Return the variants of a .bim file by id: chromosome, position, allele 1 and allele 2, with tabs between them. Allele 1 is counted.

    Raises DataError, with the line, if an id is missing or occurs twice, or a position is no whole number.
    """
    variants = dict[str, str]()
    for number, (chromosome, name, _, position, counted, other) in _read_cells(path, _BIM):
        if name in ("0", "."):
            advice = "name the variants, for example with plink2 --set-missing-var-ids"
            raise DataError(f"the variant id is missing ({name}); {advice}", str(path), number)
        if name in variants:
            raise DataError(f"variant {name} occurs twice; variant ids must be unique (see plink2 --rm-dup)", str(path), number)
        if not position.removeprefix("-").isdecimal():
            raise DataError(f"the position of variant {name} is {position!r}; it must be a whole number", str(path), number)
        variants[name] = "\t".join((chromosome, position, counted, other))
    return variants


def choose_listed(path: str, ids: Sequence[tuple[str, ...]], what: str) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the positions of the ids that a list names, in the order of the ids, and messages about unknown ones.

    A line of the list begins with FID and IID, or with the id of a variant; a first line that begins with ``#`` is a heading. Raises
    DataError if the list names none of the ids.
    """
    listed = dict[tuple[str, ...], None]()
    with _open_lines(Path(path)) as text:
        for number, line in enumerate(text, 1):
            cells = line.split()
            if cells and len(cells) < len(ids[0]):
                raise DataError("the line has one cell; FID and IID are expected", path, number)
            if cells and not (number == 1 and line.startswith("#")):
                listed[tuple(cells[: len(ids[0])])] = None
    places = np.array([k for k, one in enumerate(ids) if one in listed], np.int64)
    if not len(places):
        raise DataError(f"names none of the {len(ids):,} {what}", path)
    unknown = list(listed.keys() - set(ids)) if len(listed) > len(places) else []
    first = next((one for one in listed if one in set(unknown)), ())
    return places, [f"{len(unknown):,} of the {what} in {path} are not in the file, such as {' '.join(first)}"] if unknown else []


class PeopleTable:
    """A table about people, with commas, tabs or blanks between cells. Its first line names the columns, FID and IID among them."""

    def __init__(self, path: str) -> None:
        self.path = path
        with _open_lines(Path(path)) as text:
            heading = text.readline().removeprefix("#")
        self._mark = next((mark for mark in ",\t" if mark in heading), None)
        self.columns = next(self._cells([heading]), [])
        if len(set(self.columns)) < len(self.columns) or not {*KEYS} <= {*self.columns}:
            found = ", ".join(self.columns[:20])
            raise DataError(f"the first line must name the columns, each once, with FID and IID; it has {found}", path, 1)

    def _cells(self, lines: Iterable[str]) -> Iterator[list[str]]:
        return (line.split() for line in lines) if self._mark is None else csv.reader(lines, delimiter=self._mark)

    def read(self, names: Sequence[str], people: Sequence[Person]) -> tuple[dict[str, Texts], list[str]]:
        """Return columns in the order of the people, and messages. Raises DataError, with the line, if one of them occurs twice or a line
        is too short or too long.
        """
        family, name, *wanted = (self.columns.index(column) for column in (*KEYS, *names))
        places, lines = {person: k for k, person in enumerate(people)}, [0] * len(people)
        values = np.full((len(names), len(people)), None, object)
        with _open_lines(Path(self.path)) as text:
            text.readline()
            for number, cells in enumerate(self._cells(text), 2):
                if len(cells) != len(self.columns):
                    raise DataError(f"the line has {len(cells)} cells; the first line names {len(self.columns)}", self.path, number)
                person = cells[family].strip(), cells[name].strip()
                k = places.get(person)
                if k is None:
                    continue
                if lines[k]:
                    raise DataError(f"person {' '.join(person)} occurs twice, first in line {lines[k]}", self.path, number)
                lines[k], values[:, k] = number, [known_text(cells[column]) for column in wanted]
        absent = [person for person, line in zip(people, lines, strict=True) if not line]
        told = [f"{len(absent):,} people are not in {self.path}, such as {' '.join(absent[0])}"] if absent else []
        return dict(zip(names, values, strict=True)), told


def join_columns(tables: Sequence[PeopleTable], names: Sequence[str], people: Sequence[Person]) -> tuple[dict[str, Texts], list[str]]:
    """Return the named columns of tables in the order of the people, and messages. Raises SchemaError if a column is in no table, or in
    two.
    """
    if names and not tables:
        raise SchemaError(f"column {names[0]!r} is named, but no table about the people; give tables with FID and IID (--join)")
    columns, messages = dict[str, Texts](), list[str]()
    for name in names:
        having = [table.path for table in tables if name in table.columns]
        if not having:
            there = ", ".join(column for table in tables for column in table.columns if column not in KEYS)
            raise SchemaError(f"no joined table has a column {name!r}; they have {there}")
        if len(having) > 1:
            raise SchemaError(f"column {name!r} is in {having[0]} and in {having[1]}; rename one of them")
    for table in tables:
        read, told = table.read([name for name in names if name in table.columns], people)
        columns, messages = columns | read, messages + told
    return columns, messages


def read_phenotype(texts: Iterable[str | None], task: str, name: str, place: str) -> tuple[Texts, list[str]]:
    """Return the phenotype of each person, None where it is missing, and messages.

    -9 is always missing. If all other values are 0, 1 or 2 and the target is no number, they tell case and control: 2 is a case, 1 a
    control, and 0 missing. Raises DataError for 0 and 1 without 2, because in many tables these are control and case.
    """
    values = np.array([None if text is None else known_text(text) for text in texts], object)
    numbers = {as_number(text) for text in {*values.tolist()} - {None}}
    if task == "regression" or not numbers <= {0.0, 1.0, 2.0}:
        return values, []
    if numbers == {0.0, 1.0}:
        rule = "beside genotypes 2 is a case, 1 a control, and 0 missing"
        raise DataError(f"{name} has the values 0 and 1, and no 2; {rule}: write 1 and 2, or names such as control and case", place)
    codes = np.array([0 if text is None else int(as_number(text) or 0) for text in values])
    values[codes == 0] = None
    missing, controls, cases = np.bincount(codes, minlength=3).tolist()
    told = f"{name}: 2 is a case ({cases:,} people), 1 a control ({controls:,}); 0 and -9 are missing ({missing:,})"
    return values, [told] if missing else []


def known_text(cell: str) -> str | None:
    """Return the text of a cell; None if it is missing, as -9 is, too."""
    return None if is_missing_word(cell) or as_number(cell) == -9 else cell.strip()
