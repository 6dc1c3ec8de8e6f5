"""Parameters of every method, defined once: command line, YAML, JSON schema, estimators and documentation come from these models."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Unit = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Normalize = Literal["none", "trace", "unit_trace", "multiplicative", "cosine"]
GramPolicy = Literal["auto", "memory", "store", "recompute"]


class MethodConfig(BaseModel):
    """Base of all parameter models: frozen, closed, with a digest."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    has_tasks: ClassVar[bool] = False  # whether it fits the tasks of a store that has them
    has_scores: ClassVar[bool] = True  # whether its fits are scored on rows held out, so that settings can be compared
    takes_missing: ClassVar[bool] = False  # whether it takes stores with missing values
    takes_streams: ClassVar[bool] = False  # whether it also learns from a text that is read once

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON form."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()
