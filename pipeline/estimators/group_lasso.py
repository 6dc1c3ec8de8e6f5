"""GroupLassoClassifier and GroupLassoRegressor: linear models with few groups of features, learned from a stream or as a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from .kernel_base import documented

_PARAMETERS = """
    Parameters
    ----------
    penalty
        ``"gl"``: ``lam sum_g sqrt(d_g) ||w_g||``; ``"sgl"``: ``lam sum_g (sqrt(d_g) ||w_g|| + r_g ||w_g||_1)``; ``"egl"``: the same, with a
        threshold that decays over the rounds (``rho``); ``"l1"``: ``lam ||w||_1``.
    lam
        Weight of the penalty beside the *mean* loss.
    gamma
        Dual averaging: weight of the proximity term, ``gamma / sqrt(t)`` in round t. FOBOS: steps are ``1 / (gamma sqrt(t))``.
    groups
        One label per feature, or a list of index arrays, which may overlap; ``None``: a store's own, else every feature by itself.
    r
        Share of the l1 norm inside groups (``"sgl"``, ``"egl"``): one number, or one per group.
    rho
        ``"egl"``: the threshold of round t is ``lam r_g + rho gamma / sqrt(t)``.
    algorithm
        ``"da"``: dual averaging over the rows as they come; ``"fobos"``: forward-backward splitting over the same; ``"fista"``: the batch
        optimum, with its duality gap.
    epochs
        Passes over the rows.
    batch_size
        Rows of a round.
    shuffle
        Take blocks of rows, and the rows inside, in an order drawn from ``random_state``, a new one each epoch. Not for ``partial_fit``.
    fit_intercept
        Fit an intercept, which bears no penalty.
    average
        Predict with the mean of all iterates; costs a sweep over all features per round.
    loss
        ``"logistic"``, ``"squared"`` or ``"hinge"``; ``"auto"``: logistic for classes, squared for real targets.
    tol, max_iter
        Batch only: relative duality gap at which the fit ends, and steps at most.
"""

_CLASS_WEIGHT = """    class_weight
        ``"balanced"`` or a dict of class factors of the loss; only a dict for ``partial_fit``.
"""

_REST = """    cluster
        Where passes of the batch algorithm run: ``None`` in-process, ``"local:4"``, ``"tls://..."`` …
    random_state
        Seed of the order of rows.
    verbose
        Log one line per step.
    callbacks
        Functions called with an event record per step.
"""


class _GroupLasso(BaseEstimator):
    """What classifier and regressor share."""


@documented(_PARAMETERS, _REST, _CLASS_WEIGHT)
class GroupLassoClassifier(ClassifierMixin, _GroupLasso):
    """Linear classifier with few groups of features: online group lasso by dual averaging, FOBOS, or the batch optimum.

    Minimises ``sum_i loss(y_i (<w, x_i> + b)) / n + Omega(w)``; several classes are fitted one against the rest, on the same stream.
    """

    def __init__(
        self,
        penalty: Literal["gl", "sgl", "egl", "l1"] = "gl",
        lam: float = 0.01,
        gamma: float = 1.0,
        groups: Any = None,
        r: float | Sequence[float] = 1.0,
        rho: float = 0.0,
        algorithm: Literal["da", "fobos", "fista"] = "da",
        epochs: int = 1,
        batch_size: int = 1,
        shuffle: bool = True,
        fit_intercept: bool = True,
        average: bool = False,
        loss: Literal["auto", "logistic", "squared", "hinge"] = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None:
        self.penalty = penalty
        self.lam = lam
        self.gamma = gamma
        self.groups = groups
        self.r = r
        self.rho = rho
        self.algorithm = algorithm
        self.epochs = epochs
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.fit_intercept = fit_intercept
        self.average = average
        self.loss = loss
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


@documented(_PARAMETERS, _REST)
class GroupLassoRegressor(RegressorMixin, _GroupLasso):
    """Linear regression with few groups of features: online group lasso by dual averaging, FOBOS, or the batch optimum.

    Minimises ``sum_i loss(y_i, <w, x_i> + b) / n + Omega(w)``, the loss being ``(y - f)^2 / 2``.
    """

    def __init__(
        self,
        penalty: Literal["gl", "sgl", "egl", "l1"] = "gl",
        lam: float = 0.01,
        gamma: float = 1.0,
        groups: Any = None,
        r: float | Sequence[float] = 1.0,
        rho: float = 0.0,
        algorithm: Literal["da", "fobos", "fista"] = "da",
        epochs: int = 1,
        batch_size: int = 1,
        shuffle: bool = True,
        fit_intercept: bool = True,
        average: bool = False,
        loss: Literal["auto", "squared"] = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None:
        self.penalty = penalty
        self.lam = lam
        self.gamma = gamma
        self.groups = groups
        self.r = r
        self.rho = rho
        self.algorithm = algorithm
        self.epochs = epochs
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.fit_intercept = fit_intercept
        self.average = average
        self.loss = loss
        self.tol = tol
        self.max_iter = max_iter
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
