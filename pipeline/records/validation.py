"""Turning pydantic's findings into one clear sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from .config import MethodConfig
from .names import nearest


def make_config(kind: type[MethodConfig], params: Mapping[str, Any]) -> Any:
    """Return the checked parameter model; a bad value raises ``ValueError`` that names argument, value and rule."""
    for name in params:
        if name not in kind.model_fields:
            raise ValueError(f"parameter {name!r} does not exist{nearest(str(name), kind.model_fields)}")
    try:
        return kind(**params)
    except ValidationError as error:
        raise ValueError("; ".join(_explain(item) for item in error.errors())) from None


def _explain(item: Mapping[str, Any]) -> str:
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    name = str(item["loc"][0]) if item["loc"] else "parameters"
    return f"{name}={item['input']!r}: {item['msg'][0].lower()}{item['msg'][1:]}"
