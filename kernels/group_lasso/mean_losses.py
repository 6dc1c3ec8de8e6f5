"""Names under which losses were known before :mod:`gramplane.kernels.losses` had them all."""

from __future__ import annotations

from ..losses import LossName, mean_loss

__all__ = ["LossName", "MeanLoss"]

MeanLoss = mean_loss
