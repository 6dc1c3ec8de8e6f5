"""RidgeRegression: a scikit-learn class in a few lines."""

from typing import Any

from gramplane.pipeline.estimators.base import Regressor

from .method import Ridge


class RidgeRegression(Regressor):
    """Linear least squares with a penalty on the squared length of the coefficients.

    Parameters
    ----------
    lam : float > 0, default=1.0
        Weight of the penalty: larger values shrink the coefficients more.
    tol : float > 0, default=1e-3
        Gap at which the fit ends.
    max_iter : int >= 1, default=50
        Gradient steps at most.
    cluster, random_state, verbose, callbacks
        As in the other estimators.
    """

    _method = Ridge()

    def __init__(
        self,
        lam: float = 1.0,
        tol: float = 1e-3,
        max_iter: int = 50,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
    ) -> None:
        self.lam = lam
        self.tol = tol
        self.max_iter = max_iter
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
