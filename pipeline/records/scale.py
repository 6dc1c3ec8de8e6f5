"""Column scaling as stored in models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class FeatureScale:
    """Column scaling of the features a model uses: ``x~ = (x - shift) * factor``."""

    record_name: ClassVar[str] = "FeatureScale"
    factor: np.ndarray | None = None
    shift: np.ndarray | None = None
