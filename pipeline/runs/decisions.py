"""What a run decides of parameters that leave something to the data: once, written into its configuration, and obeyed when it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..inputs.default_kernels import grid_texts
from ..records.config import MethodConfig
from ..records.data_set import DataSet


def as_decided(config: MethodConfig, record: Mapping[str, Any], data: DataSet) -> MethodConfig:
    """Return the parameters of a run with what was decided when it was made; one of a version that decided nothing goes on as it began."""
    if "decided" in record:
        return config.model_copy(update=dict(record["decided"]))
    return config if getattr(config, "kernels", ()) is not None else config.model_copy(update={"kernels": grid_texts(data.n_cols)})
