"""Parameters of every method, defined once. Command line, YAML, JSON schema, estimators and documentation are derived from these models."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from .names import joined_branches, nearest

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Unit = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Normalize = Literal["none", "trace", "unit_trace", "multiplicative", "cosine"]
GramPolicy = Literal["auto", "memory", "store", "recompute"]
StorePath = Annotated[str | None, Field(description="path of a Gram store, kept for further fits")]
ClassWeight = Annotated[Literal["balanced"] | dict[str, Positive] | None, Field(description="factors of C per class")]
Kernels = Literal["precomputed"] | list[str] | None
MachineKernels = Annotated[
    Kernels,
    Field(description="kernels such as rbf(gamma=0.5) or linear; or precomputed"),
]
TaskKernels = Annotated[
    Kernels,
    Field(description="kernels such as rbf(gamma=0.5) or linear; or precomputed"),
]
TaskLoss = Annotated[
    Literal["auto", "hinge", "epsilon_insensitive", "squared"],
    Field(description="loss of a row; auto: hinge, or epsilon_insensitive"),
]
Probability = Annotated[
    Literal["auto", "sigmoid", "isotonic", False],
    Field(description="how class probabilities are obtained"),
]
SharedLossWeight = Annotated[
    Positive | Literal["auto"],
    Field(description="inverse regularisation strength; auto: by the target"),
]
Tube = Annotated[NonNegative, Field(description="half-width of the tube, in standard deviations of the target")]


Scale = Annotated[
    Literal["auto", "standard", "max-abs", "unit-column"] | None,
    # As `ingest --scale` writes it.
    BeforeValidator(lambda value: None if isinstance(value, str) and value == "none" else value),
    Field(description="scaling of the columns, stored in the model"),
]
NON_NEGATIVE = re.compile(r"\b(poly2|hik|chi2|additive_chi2)\b")  # products, and maps and kernels of values >= 0: no centres


FOLD_TOL_FACTOR = 10.0  # of tolerances in fits made for their decision values: what is left changes them less than other rows would


class MethodConfig(BaseModel):
    """Base of all parameter models: immutable, without extra fields, with a digest."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    has_tasks: ClassVar[bool] = False  # whether it fits the tasks of a store that has them
    has_scores: ClassVar[bool] = True  # whether its fits are scored on rows held out, so that settings can be compared
    takes_missing: ClassVar[bool] = False  # whether it takes stores with missing values
    takes_streams: ClassVar[bool] = False  # whether it also learns from a text that is read once
    fold_tols: ClassVar[Mapping[str, float]] = {}  # tolerances that fits without some rows may widen, with upper limits
    # Parameters that decide what passes read: fits that differ in them share neither passes nor matrices.
    pass_parameters: ClassVar[tuple[str, ...]] = ("kernels", "normalize", "grams", "gram_store")
    path_falls: ClassVar[bool] = False  # whether the largest value of the first of `path` comes first

    @property
    def path(self) -> tuple[str, ...]:
        """Parameters in which fits may differ and still use one another as a warm start; the parameter of the path is first. Empty if there
        are none.
        """
        return ()

    @property
    def off_path(self) -> str:
        """A key made of all parameters that are not in ``path``. Fits can use one another as a warm start only if their keys are equal."""
        return repr({name: value for name, value in self.model_dump(mode="json").items() if name not in self.path})

    @property
    def learns_from_stream(self) -> bool:
        """Whether the fit reads rows as a stream."""
        return False

    @property
    def auto_scale(self) -> Literal["standard", "max-abs", None]:
        """The meaning of ``scale="auto"``. Sparse columns get ``max-abs`` instead of ``standard``."""
        if self.learns_from_stream:
            return None
        seen_by = "; ".join(str(getattr(self, name, None)) for name in ("kernels", "kernel", "dag", "feature_map"))
        without_columns = re.sub(r"(?<=[\w)])\[[^]]*\]", "", seen_by)
        return "max-abs" if NON_NEGATIVE.search(without_columns) or not getattr(self, "fit_intercept", True) else "standard"

    @property
    def calibrates(self) -> bool:
        """Whether a fit includes the calibration of probabilities."""
        return getattr(self, "probability", False) in ("sigmoid", "isotonic")

    @property
    def is_logistic(self) -> bool:
        """Whether a classifier's decision values are log odds, as with the logistic loss."""
        return getattr(self, "loss", None) == "logistic"

    @property
    def probability_kind(self) -> str:
        """Conversion of decision values to probabilities: logistic, sigmoid or isotonic."""
        if self.is_logistic:
            return "logistic"
        return "isotonic" if getattr(self, "probability", None) == "isotonic" else "sigmoid"

    def for_folds(self) -> Self:
        """Return parameters with larger tolerances, for fits of which only the decision values are used."""
        given = {name: getattr(self, name) for name in self.fold_tols}
        wider = {name: max(min(FOLD_TOL_FACTOR * tol, self.fold_tols[name]), tol) for name, tol in given.items() if tol is not None}
        return self.model_copy(update=wider) if wider else self

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON form."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()

    def decisions_of(self, decided: Self) -> dict[str, Any]:
        """Return the values of the parameters that differ in ``decided``: those that were derived from the data."""
        before, after = self.model_dump(mode="json"), decided.model_dump(mode="json")
        return {name: value for name, value in after.items() if value != before[name]}


class GramConfig(MethodConfig):
    """Base of the parameters of methods that can keep Gram matrices in a Gram store."""

    if TYPE_CHECKING:
        grams: GramPolicy
        gram_store: str | None

    @model_validator(mode="after")
    def _store_has_a_path(self) -> Self:
        if self.grams == "store" and self.gram_store is None:
            raise ValueError("grams='store' needs gram_store, the path of the Gram store")
        return self


C = TypeVar("C", bound=MethodConfig)


def make_config(kind: type[C], params: Mapping[str, Any]) -> C:
    """Return the checked parameter model. Raises ValueError with argument, value and rule."""
    for name in params:
        if name not in kind.model_fields:
            raise ValueError(f"parameter {name!r} does not exist{nearest(str(name), kind.model_fields)}")
    try:
        return kind(**params)
    except ValidationError as error:
        raise ValueError("; ".join(_explain(item) for item in joined_branches(error.errors()))) from None


def _explain(item: Mapping[str, Any]) -> str:
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    name = str(item["loc"][0]) if item["loc"] else "parameters"
    return f"{name}={item['input']!r}: {item['msg'][0].lower()}{item['msg'][1:]}"
