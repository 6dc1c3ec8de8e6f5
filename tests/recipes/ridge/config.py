"""Parameters of ridge regression."""

from pydantic import Field

from gramplane.pipeline.records.config import Count, MethodConfig, Positive


class RidgeConfig(MethodConfig):
    """Parameters of ridge regression (``ridge``)."""

    lam: Positive = Field(1.0, description="weight of the squared length of the coefficients")
    tol: Positive = Field(1e-3, description="gap at which the fit ends")
    max_iter: Count = Field(50, description="gradient steps at most")
