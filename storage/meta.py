"""The description of a block store: shape, kind, labels, and the factors of its column scaling."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .blocks.tables import column_tables
from .errors import Json, Matrix, SchemaError, check_format, format_name

Label = str | int | float | bool
ScaleKind = Literal["none", "unit-column", "standard", "unit-row", "max-abs"]
_SCALES = ("none", "unit-column", "standard", "unit-row", "max-abs")
_VALUES = ("float32", "float64")


@dataclass(frozen=True, eq=False)
class ColumnScale:
    """Scaling as factors, applied when reading: ``x~_ij = r_i (x_ij - mu_j) s_j``.

    * ``factor``: s, float64 (n_cols,); None means ones.
    * ``shift``: mu, float64 (n_cols,); None means zeros. Sparse data have no shift.
    * ``row_factor``: r, (n_rows,); None means ones.
    """

    kind: ScaleKind = "none"
    factor: npt.NDArray[np.float64] | None = None
    shift: npt.NDArray[np.float64] | None = None
    row_factor: npt.NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if self.kind not in _SCALES:
            raise SchemaError(f"scale is {self.kind!r}; it must be one of {', '.join(_SCALES)}")


@dataclass(frozen=True)
class BlockMeta:
    """Description of a block store.

    - ``labels``: original labels of class codes 0, 1, …; None for a real-valued target.
    - ``scale``: kind of the column scaling, whose factors are `BlockStore.scale`.
    - ``info``: free JSON values, such as source and options of the ingest.
    - ``n_missing``: number of missing values (NaN) in a dense store ingested with ``missing="keep"``; the column table "missing" holds
      their number per column. For arrays in memory they are not counted.
    - ``task_names``: names of task codes 0, 1, …, ascending; None if the row table "task" holds task numbers or does not exist.
    - ``n_coded``: number of columns that hold level numbers, named in `BlockStore.encoding`.
    - ``covariates``: names of the columns of the row table "covariates", (n_rows, n_covariates), if it exists.
    - ``digest``: sha256 of the manifest; empty until the store is committed.
    """

    n_rows: int
    n_cols: int
    kind: Literal["sparse", "dense"]
    dtype: str
    labels: tuple[Label, ...] | None = None
    scale: ScaleKind = "none"
    layouts: tuple[str, ...] = ("columns",)
    info: Mapping[str, Any] = field(default_factory=dict)
    n_missing: int = 0
    task_names: tuple[str, ...] | None = None
    n_coded: int = 0
    covariates: tuple[str, ...] | None = None
    digest: str = ""

    def __post_init__(self) -> None:
        rules = {
            "n_rows": 0 <= self.n_rows < 2**31,
            "n_cols": 0 <= self.n_cols < 2**62,
            "kind": self.kind in ("sparse", "dense"),
            "dtype": self.dtype in _VALUES,
            "scale": self.scale in _SCALES,
            "layouts": self.layouts in (("columns",), ("columns", "rows")),
            "n_missing": 0 <= self.n_missing <= (self.n_rows * self.n_cols if self.kind == "dense" else 0),
        }
        for name, holds in rules.items():
            if not holds:
                raise SchemaError(f"{name} is {getattr(self, name)!r}, which a block store cannot have (n_rows < 2^31, values {_VALUES})")

    @property
    def itemsize(self) -> int:
        return int(np.dtype(self.dtype).itemsize)

    def attributes(self) -> dict[str, Any]:
        """Attributes of the root group, without the digest, which is computed from them."""
        values = asdict(self)
        del values["digest"]
        return {"gramplane": {"schema": format_name("blocks"), **values}}

    @classmethod
    def from_attributes(cls, attributes: Json, digest: str, where: str) -> "BlockMeta":
        """Read the attributes of the root group. Raises SchemaError if this is not a block store, or a block store in another format."""
        stored = attributes.get("gramplane") if isinstance(attributes, dict) else None
        if not isinstance(stored, dict) or "schema" not in stored:
            raise SchemaError(f"{where} is not a block store: its attributes have no 'gramplane.schema'")
        check_format(stored["schema"], "blocks", where, "run `gramplane ingest` again on the source, or install the version that wrote it")
        rules = {
            **dict.fromkeys(("n_rows", "n_cols", "n_missing", "n_coded"), lambda v: type(v) is int and v >= 0),
            **dict.fromkeys(("kind", "dtype", "scale"), lambda v: isinstance(v, str)),
            "labels": lambda v: v is None or (isinstance(v, list) and all(isinstance(label, str | int | float) for label in v)),
            "layouts": lambda v: isinstance(v, list),
            "info": lambda v: isinstance(v, dict),
            "covariates": lambda v: v is None or (v and isinstance(v, list) and set(map(type, v)) == {str}),
            "task_names": lambda v: v is None or _are_names(v),
        }
        for name, rule in rules.items():
            if name not in stored or not rule(stored[name]):
                raise SchemaError(f"{where}: the attribute {name} is {stored.get(name)!r}, which a block store cannot have")
        tuples = {name: stored[name] and tuple(stored[name]) for name in ("layouts", "task_names", "covariates")}
        labels = None if stored["labels"] is None else tuple(stored["labels"])
        return cls(**{**{name: stored[name] for name in rules}, **tuples, "labels": labels, "digest": digest})


def _are_names(value: Json) -> bool:
    return bool(value) and isinstance(value, list) and set(map(type, value)) == {str} and value == sorted(set(value))


# Factors of the scaling of columns, from columns that hold all their rows: the same for a store and for arrays in memory.

Floats = npt.NDArray[np.float64]

COLUMN_SCALES = ("standard", "max-abs", "unit-column")  # kinds that have a factor per column


def inverse_root(squares: Floats) -> Floats:
    """Return 1 / sqrt, and 0 where the argument is 0, so that empty and constant columns get the factor 0 and the score 0."""
    out = np.zeros_like(squares)
    np.divide(1.0, np.sqrt(squares), out=out, where=squares > 0)
    return out


def column_factors(
    kind: str, tables: Mapping[str, npt.NDArray[Any]], *, is_dense: bool
) -> tuple[Floats, Floats | None, npt.NDArray[np.int64]]:
    """Return three results for a kind of scaling: the factors of the columns, their centres (dense "standard" only, else None), and the
    columns whose squares overflow. All rows count, zeros included.

    ``tables`` are the column tables, with means and variances for "standard". Columns whose squares overflow have no factors.
    """
    low, high = (np.asarray(tables[name], np.float64) for name in ("minimum", "maximum"))
    if kind == "max-abs":
        largest = np.maximum(np.abs(low), np.abs(high))
        return np.divide(1.0, largest, out=np.zeros_like(largest), where=largest > 0), None, np.zeros(0, np.int64)
    if kind == "unit-column":
        return inverse_root(tables["sumsq"]), None, np.flatnonzero(~np.isfinite(tables["sumsq"]))
    constant = low == high
    # Rounding can leave a constant column a tiny variance, and the factor would blow the rounding up.
    factor = inverse_root(np.where(constant, 0.0, tables["variance"]))
    shift = np.where(constant, low, tables["mean"]) if is_dense else None
    return factor, shift, np.flatnonzero(~np.isfinite(tables["variance"]))


def factors_of(block: Matrix, kind: str, weight: Floats | None = None) -> tuple[Floats, Floats | None, npt.NDArray[np.int64]]:
    """Return the same as :func:`column_factors` for a block without column tables. ``weight`` ``(n_rows,)`` is the number of times that
    each row counts.
    """
    tables = column_tables(block, weight, sizes=kind == "unit-column", moments=kind == "standard")
    return column_factors(kind, tables, is_dense=isinstance(block, np.ndarray))
