"""Probabilities of classes: exact where the loss says them, otherwise calibrated at fit, or of the data of the fit when first asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils.metaestimators import available_if

from ...kernels.jit import one_thread
from ...storage import MemoryBlocks
from ...storage.blocks.look import look
from ...storage.value_types import UserData
from ..calibration.fits import Fit, calibrate, known_calibration
from ..models.calibration import Calibration, class_probabilities
from ..records.context import RunContext
from .base import MethodEstimator, method_context
from .inputs import Column, UserRows, warn_user


class LateCalibration:
    """A calibration that is made when it is first asked for: then it refers to the data of the fit, which it does not copy.

    Its owner holds the same object before and after, and copies of it have the calibration, if there is one, but no data.
    """

    def __init__(self, make: Callable[[], Calibration] | None) -> None:
        self._make, self._calibration = make, None

    def get(self) -> Calibration | None:
        """Return the calibration, or ``None`` of a copy without data."""
        if self._calibration is None and self._make is not None:
            self._calibration = self._make()
            self._make = None
        return self._calibration

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": None, "_calibration": self._calibration}


def late_calibration(fit: Fit, place: str | None, seed: int, all_memory: bool) -> LateCalibration:
    """Return the calibration of a fit in memory, to be made where and from the seed that the fit was."""
    return LateCalibration(partial(_calibrate_later, fit, place, seed, all_memory, _marks(fit, anew=False)))


def _calibrate_later(fit: Fit, place: str | None, seed: int, all_memory: bool, marks: dict[str, bytes]) -> Calibration:
    changed = [name for name, mark in _marks(fit, anew=True).items() if mark != marks[name]]
    if changed:
        raise ValueError(
            f"{changed[0]} was changed after fit, in place: probability='auto' calibrates from the data of the fit when probabilities are "
            "first asked for; fit again, or with probability='sigmoid', which calibrates at fit"
        )
    getattr(fit.inputs.data, "confirm", tuple)()
    with method_context(fit.inputs.data, place, seed=seed, all_memory=all_memory) as ctx:
        return _calibrate(fit, ctx)


def _calibrate(fit: Fit, ctx: RunContext) -> Calibration:
    """Return the calibration of a fit, and warn where it has few folds."""
    folds = fit.folds(ctx.seed)
    if folds.message:
        warn_user(folds.message)
    return calibrate(fit, ctx, folds)


def _marks(fit: Fit, *, anew: bool) -> dict[str, bytes]:
    """Return marks of what a fit shares with its user, by the names of the arguments; stores cannot change. Unless ``anew`` rows have the
    mark that a fit saw when it looked at them.
    """
    data, weight, marks = fit.inputs.data, fit.rows.sample_weight, {}
    given = getattr(data, "source", None)
    if isinstance(data, MemoryBlocks):
        marks["X"] = (look(data.X) if anew else data.look).mark
    elif isinstance(given, np.ndarray):
        marks["X"] = look(given).mark
    if weight is not None:
        marks["sample_weight"] = look(weight).mark
    return marks


def has_probabilities(estimator: Any) -> bool:
    """Return whether an estimator's parameters let it give probabilities of classes."""
    return estimator._is_classifier and estimator.probability is not False


class ProbabilityEstimator(MethodEstimator):
    """What classifiers share that give probabilities of their classes: exact, calibrated at fit, or calibrated when first asked for."""

    probability: Any
    _is_classifier: ClassVar[bool]
    _late: LateCalibration | None = None

    def _with_calibration(self, fit: Fit, model: Any, ctx: RunContext) -> Any:
        self._late = None
        if not has_probabilities(self) or known_calibration(fit.method, model):
            return model
        if fit.config.calibrates:
            return replace(model, calibration=_calibrate(fit, ctx))
        self._late = late_calibration(fit, self._fit_place(fit.inputs.data), ctx.seed, self._takes_all_memory)
        return model

    def _probabilities(self, values: np.ndarray) -> np.ndarray:
        """Return the probabilities of the classes, of decision values ``(n_samples, n_machines)``."""
        found = known_calibration(self._method, self.model_) or (None if self._late is None else self._late.get())
        if found is None:
            raise ValueError(
                f"{type(self).__name__}: there are no probabilities, and no data of a fit to calibrate them from: rows of partial_fit are "
                "gone, and copies and loaded models carry none. Fit with probability='sigmoid' (or 'isotonic'), or ask for probabilities "
                "before copying; a logistic loss, where there is one, needs no calibration"
            )
        return class_probabilities(found, values)


class ClassProbabilities(ProbabilityEstimator):
    """Probabilities of classes, from decision values of rows."""

    if TYPE_CHECKING:

        def _values(self, X: UserData) -> np.ndarray: ...

    @available_if(has_probabilities)
    def predict_proba(self, X: UserRows) -> np.ndarray:
        """Return the probabilities of the classes, ``(n_samples, n_classes)`` in the order of ``classes_``.

        :meth:`predict` goes by decision values: where these are calibrated the most probable class may be another one. The first call
        after a fit with ``probability="auto"`` and another loss than the logistic one takes about five fits.

        Raises ValueError: there is nothing to calibrate from, or the data of the fit were changed.
        """
        with one_thread():
            return self._probabilities(self._values(X))

    @available_if(has_probabilities)
    def predict_log_proba(self, X: UserRows) -> np.ndarray:
        """Return the logarithms of :meth:`predict_proba`, ``(n_samples, n_classes)``."""
        return log_of(self.predict_proba(X))


class TaskProbabilities(ProbabilityEstimator):
    """Probabilities of classes, from decision values of rows of tasks."""

    if TYPE_CHECKING:

        def _values(self, X: UserData, task: UserData = None) -> np.ndarray: ...

    @available_if(has_probabilities)
    def predict_proba(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the probabilities of the classes, ``(n_samples, n_classes)`` in the order of ``classes_``.

        ``task`` names the task of every row. All tasks have one calibration.

        :meth:`predict` goes by decision values: where these are calibrated the most probable class may be another one. The first call
        after a fit with ``probability="auto"`` and another loss than the logistic one takes about five fits.

        Raises ValueError: there is nothing to calibrate from, or the data of the fit were changed.
        """
        with one_thread():
            return self._probabilities(self._values(X, task))

    @available_if(has_probabilities)
    def predict_log_proba(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the logarithms of :meth:`predict_proba`, ``(n_samples, n_classes)``."""
        return log_of(self.predict_proba(X, task))


class CovariateProbabilities(ProbabilityEstimator):
    """Probabilities of classes, from decision values of rows with covariates."""

    if TYPE_CHECKING:

        def _values(self, X: UserData, covariates: UserData = None) -> np.ndarray: ...

    @available_if(has_probabilities)
    def predict_proba(self, X: UserRows, *, covariates: UserRows | None = None) -> np.ndarray:
        """Return the probabilities of the classes, ``(n_samples, n_classes)`` in the order of ``classes_``.

        :meth:`predict` goes by decision values: where these are calibrated the most probable class may be another one. The first call
        after a fit with ``probability="auto"`` and another loss than the logistic one takes about five fits.

        Raises ValueError: there is nothing to calibrate from, or the data of the fit were changed.
        """
        with one_thread():
            return self._probabilities(self._values(X, covariates))

    @available_if(has_probabilities)
    def predict_log_proba(self, X: UserRows, *, covariates: UserRows | None = None) -> np.ndarray:
        """Return the logarithms of :meth:`predict_proba`, ``(n_samples, n_classes)``."""
        return log_of(self.predict_proba(X, covariates=covariates))


def log_of(probabilities: np.ndarray) -> np.ndarray:
    """Return logarithms; that of 0 is minus infinity."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities)
