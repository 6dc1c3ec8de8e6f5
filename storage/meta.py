"""What a block store says about itself: shape, kind, labels, and the factors of its column scaling."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .errors import SchemaError
from .value_types import Json

SCHEMA = "gramplane.blocks/1"
SCHEMA_WITH_MISSING = "gramplane.blocks/2"
"""Of stores that hold missing values: programs that know nothing of them shall not take NaN for a number."""
SCHEMA_WITH_TASK_NAMES = "gramplane.blocks/3"
"""Of stores whose tasks have names: programs that know nothing of them would match the codes of two stores. It may hold missing values."""
_SCHEMAS = (SCHEMA, SCHEMA_WITH_MISSING, SCHEMA_WITH_TASK_NAMES)

Label = str | int | float
ScaleKind = Literal["none", "unit-column", "standard", "unit-row"]
_SCALES = ("none", "unit-column", "standard", "unit-row")
_VALUES = ("float32", "float64")


@dataclass(frozen=True, eq=False)
class ColumnScale:
    """Scaling as factors, never as a copy: x~_ij = r_i (x_ij - mu_j) s_j.

    ``kind``: "none", "unit-column", "standard" or "unit-row"; ``factor``: float64 array (n_cols,) or None, s; None means ones; ``shift``:
    float64 array (n_cols,) or None, mu; None means zeros (always None for sparse data); ``row_factor``: float64 array (n_rows,) or None, r;
    None means ones.
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

    ``n_rows``, ``n_cols``: shape; ``kind``: "sparse" or "dense"; ``dtype``: "float32" or "float64", the type of the values; ``labels``:
    original label of class code 0, 1, …; None for a real-valued target; ``scale``: kind of the column scaling; the factors are
    `BlockStore.scale`; ``layouts``: ("columns",) or ("columns", "rows"); ``info``: free JSON values: source, options of the ingest, ….
    ``n_missing``: missing values (NaN) of a store, all columns together; the column table "missing" has them by column. Only dense stores
    ingested with ``missing="keep"`` have any. Those of arrays in memory are not counted. ``task_names``: name of task code 0, 1, …,
    ascending; None where the row table "task" holds the numbers of the tasks, or is not there; ``digest``: sha256 of the manifest; empty
    before the store is committed.
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
        """Bytes of one value."""
        return int(np.dtype(self.dtype).itemsize)

    def attributes(self) -> dict[str, Any]:
        """Attributes of the root group; the digest is not among them, since it covers them."""
        values = {name: value for name, value in asdict(self).items() if name != "digest"}
        for name in ("n_missing", "task_names"):
            if not values[name]:
                del values[name]
        return {"gramplane": {"schema": self._schema, **values}}

    @property
    def _schema(self) -> str:
        if self.task_names:
            return SCHEMA_WITH_TASK_NAMES
        return SCHEMA_WITH_MISSING if self.n_missing else SCHEMA

    @classmethod
    def from_attributes(cls, attributes: Json, digest: str, where: str) -> "BlockMeta":
        """Read the attributes of the root group.

        Raises SchemaError if this is no block store, or one of a version this program does not know.
        """
        stored = attributes.get("gramplane") if isinstance(attributes, dict) else None
        if not isinstance(stored, dict) or "schema" not in stored:
            raise SchemaError(f"{where} is not a block store: its attributes have no 'gramplane.schema'")
        if stored["schema"] not in _SCHEMAS:
            raise SchemaError(
                f"{where} has the schema {stored['schema']!r}; this version reads {', '.join(map(repr, _SCHEMAS))}: "
                "run `gramplane ingest` again on the source, or install the version that wrote it"
            )
        values = {f.name: stored[f.name] for f in fields(cls) if f.name in stored}
        named = stored["schema"] == SCHEMA_WITH_TASK_NAMES
        rules = {
            **dict.fromkeys(("n_rows", "n_cols"), lambda v: type(v) is int),
            "labels": lambda v: v is None or (isinstance(v, list) and all(isinstance(label, str | int | float) for label in v)),
            "layouts": lambda v: isinstance(v, list),
            "info": lambda v: isinstance(v, dict),
            "n_missing": lambda v: type(v) is int and v >= 0 and (named or (v > 0) == (stored["schema"] == SCHEMA_WITH_MISSING)),
            "task_names": lambda v: _are_names(v) if named else v is None,
        }
        values.setdefault("n_missing", 0)
        values.setdefault("task_names", None)
        for name in ("n_rows", "n_cols", "kind", "dtype", *rules):
            if name not in values or not rules.get(name, bool)(values[name]):
                raise SchemaError(f"{where}: the attribute {name} is {values.get(name)!r}, which a block store cannot have")
        values["labels"] = None if values["labels"] is None else tuple(values["labels"])
        values["layouts"] = tuple(values["layouts"])
        values["task_names"] = tuple(values["task_names"]) if named else None
        return cls(**{**values, "digest": digest})


def _are_names(values: Json) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(name, str) for name in values) and values == sorted(set(values))
