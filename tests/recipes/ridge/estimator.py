"""RidgeRegression: a scikit-learn class in a few lines."""

from gramplane.pipeline.estimators.linear import LinearEstimator
from gramplane.pipeline.estimators.supervised import SupervisedRegressor

from .method import Ridge


class RidgeRegression(SupervisedRegressor, LinearEstimator):
    """Linear least squares with a penalty on the squared length of the coefficients."""

    _method = Ridge
