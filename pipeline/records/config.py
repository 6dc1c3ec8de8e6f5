"""Parameters of every method, defined once: command line, YAML, JSON schema and documentation come from these models."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class MethodConfig(BaseModel):
    """Base of all parameter models: frozen, closed, with a digest."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON form."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def describe(config: type[MethodConfig]) -> dict[str, Any]:
    """Return the JSON schema of a parameter model."""
    return config.model_json_schema()


Normalize = Literal["none", "trace", "unit_trace", "multiplicative", "cosine"]


GramPolicy = Literal["auto", "memory", "store", "recompute"]


Unit = Annotated[float, Field(ge=0, le=1)]


NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
