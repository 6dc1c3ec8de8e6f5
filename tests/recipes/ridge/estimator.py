"""RidgeRegression: a scikit-learn class in ten lines."""

from gramplane.pipeline.estimators.kernels import KernelRegressor

from .method import Ridge


class RidgeRegression(KernelRegressor):
    """Linear least squares with a penalty on the squared length of the coefficients."""

    _method, kernels = Ridge, None

    def fit(self, X, y=None, sample_weight=None):
        self._fit(self._inputs(X, y, sample_weight))
        return self
