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
SCHEMA_WITH_CODES = "gramplane.blocks/4"
"""Of stores with columns that hold numbers of levels: programs that know nothing of them would take these for quantities. It may hold
missing values and names of tasks."""
_SCHEMAS = (SCHEMA, SCHEMA_WITH_MISSING, SCHEMA_WITH_TASK_NAMES, SCHEMA_WITH_CODES)

Label = str | int | float | bool
ScaleKind = Literal["none", "unit-column", "standard", "unit-row", "max-abs"]
_SCALES = ("none", "unit-column", "standard", "unit-row", "max-abs")
_VALUES = ("float32", "float64")
_YOUNG = {"n_missing": 0, "task_names": None, "n_coded": 0, "covariates": None}  # attributes that older stores do not have


@dataclass(frozen=True, eq=False)
class ColumnScale:
    """Scaling as factors, never as a copy: x~_ij = r_i (x_ij - mu_j) s_j.

    ``factor`` is s and ``shift`` mu, float64 (n_cols,), ``row_factor`` is r, (n_rows,); None means ones or zeros. Sparse data have no
    shift.
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

    ``labels``: original label of class code 0, 1, …; None for a real-valued target. ``scale``: kind of the column scaling, whose factors
    are `BlockStore.scale`. ``info``: free JSON values, such as source and options of the ingest. ``n_missing``: missing values (NaN) of a
    dense store ingested with ``missing="keep"``, of all columns; the column table "missing" has them by column. Those of arrays in memory
    are not counted. ``task_names``: name of task code 0, 1, …, ascending; None where the row table "task" holds the numbers of the tasks,
    or is not there. ``n_coded``: columns that hold numbers of levels, as `BlockStore.encoding` names them. ``covariates``: names of the
    columns of the row table "covariates", (n_rows, n_covariates), where there is one. ``digest``: sha256 of the manifest; empty before the
    store is committed.
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
        """Bytes of one value."""
        return int(np.dtype(self.dtype).itemsize)

    def attributes(self) -> dict[str, Any]:
        """Attributes of the root group; the digest is not among them, since it covers them."""
        with_missing = SCHEMA_WITH_TASK_NAMES if self.task_names else SCHEMA_WITH_MISSING if self.n_missing else SCHEMA
        schema = SCHEMA_WITH_CODES if self.n_coded else with_missing
        values = {name: value for name, value in asdict(self).items() if value or name not in _YOUNG}
        del values["digest"]
        return {"gramplane": {"schema": schema, **values}}

    @classmethod
    def from_attributes(cls, attributes: Json, digest: str, where: str) -> "BlockMeta":
        """Read the attributes of the root group; SchemaError if this is no block store, or one of an unknown version."""
        stored = attributes.get("gramplane") if isinstance(attributes, dict) else None
        if not isinstance(stored, dict) or "schema" not in stored:
            raise SchemaError(f"{where} is not a block store: its attributes have no 'gramplane.schema'")
        if stored["schema"] not in _SCHEMAS:
            advice = "run `gramplane ingest` again on the source, or install the version that wrote it"
            known = ", ".join(map(repr, _SCHEMAS))
            raise SchemaError(f"{where} has the schema {stored['schema']!r}; this version reads {known}: {advice}")
        values = {**_YOUNG, **{f.name: stored[f.name] for f in fields(cls) if f.name in stored}}
        named, coded = (stored["schema"] == schema for schema in (SCHEMA_WITH_TASK_NAMES, SCHEMA_WITH_CODES))
        rules = {
            **dict.fromkeys(("n_rows", "n_cols"), lambda v: type(v) is int),
            "labels": lambda v: v is None or (isinstance(v, list) and all(isinstance(label, str | int | float) for label in v)),
            "layouts": lambda v: isinstance(v, list),
            "info": lambda v: isinstance(v, dict),
            "covariates": lambda v: v is None or (v and isinstance(v, list) and set(map(type, v)) == {str}),
            "n_missing": lambda v: type(v) is int and v >= 0 and (named or coded or (v > 0) == (stored["schema"] == SCHEMA_WITH_MISSING)),
            "task_names": lambda v: _are_names(v) if named else v is None or (coded and _are_names(v)),
            "n_coded": lambda v: type(v) is int and v >= 0 and (v > 0) == coded,
        }
        for name in ("n_rows", "n_cols", "kind", "dtype", *rules):
            if name not in values or not rules.get(name, bool)(values[name]):
                raise SchemaError(f"{where}: the attribute {name} is {values.get(name)!r}, which a block store cannot have")
        tuples = {name: values[name] and tuple(values[name]) for name in ("layouts", "task_names", "covariates")}
        labels = None if values["labels"] is None else tuple(values["labels"])
        return cls(**{**values, **tuples, "labels": labels, "digest": digest})


def _are_names(value: Json) -> bool:
    return bool(value) and isinstance(value, list) and set(map(type, value)) == {str} and value == sorted(set(value))
