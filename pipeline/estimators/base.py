"""MethodEstimator: what every estimator does alike. It fits with the method that a run uses, in the same way."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from ...cluster import machine_memory
from ...cluster.events import Sink
from ...storage.data import as_data
from ...storage.encoding.encoder import encoder_of
from ...storage.encoding.record import TableColumns
from ..calibration.fits import Fit, kept_grams
from ..loops.protocol import LoopState
from ..loops.run import run_loop
from ..method import BOUNDS, GAPS, Method
from ..models.predictor import Predictor
from ..records.config import make_config
from ..records.context import RunContext, ignore, once
from .frames import known_names
from .inputs import OneThread, fan_out, fit_context, history_arrays, seed_of, shown_fit, warn_user


class MethodEstimator(OneThread, BaseEstimator):
    """Base of all estimators: parameters from the method's model, one way to fit, to warn, to load.

    A subclass names its method, makes inputs of what ``fit`` gets, and sets the attributes that follow from a model in :meth:`_set_model`.
    """

    _method: ClassVar[type[Method]]
    _takes_all_memory: ClassVar[bool] = False  # whether only a fit beyond this machine's memory is refused, not one beyond a driver's share

    cluster: Any
    random_state: Any
    verbose: Any
    callbacks: Any
    model_: Any
    _source_columns: TableColumns | None = None  # of a frame that is encoded, or of a store made of a table
    n_features_in_: int
    classes_: np.ndarray
    converged_: bool
    stop_reason_: str | None

    @property
    def encoding_(self) -> Any:
        """scikit-learn's encoders, fitted, from the columns of a table, found by their names, to its features; else not there."""
        if self._source_columns is None:
            raise AttributeError(f"this {type(self).__name__} has no attribute 'encoding_': it was not fitted on a table")
        return encoder_of(self._source_columns)

    def _config(self) -> Any:
        """Return the checked parameters."""
        fields = self._method.config_type.model_fields
        params = self._plain({name: value for name, value in self.get_params(deep=False).items() if name in fields})
        plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in params.items()}
        return make_config(self._method.config_type, plain)

    def _plain(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return parameters as the parameter model takes them."""
        if isinstance(params.get("class_weight"), Mapping):
            params["class_weight"] = {str(key): value for key, value in params["class_weight"].items()}
        return params

    @property
    def _place(self) -> str | None:
        """Where passes run."""
        return self.cluster

    def _fit_place(self, data: Any) -> str | None:
        """Return where passes of a fit run: matrices and strings in memory are worked on in this process."""
        return self._place if getattr(data, "travels", True) else "sync"

    def _shown(self) -> AbstractContextManager[Sink]:
        """Return a context manager that yields what shows a fit."""
        return shown_fit(self.verbose, type(self).__name__, self._config)

    @contextlib.contextmanager
    def _context(self, data: Any) -> Iterator[RunContext]:
        """Yield the context of a fit."""
        place, seed = self._fit_place(data), seed_of(self.random_state)
        with self._shown() as shown:
            emit = fan_out(self.callbacks, self.verbose, shown)
            with method_context(data, place, seed, self._takes_all_memory, emit, shown) as ctx:
                yield ctx

    @contextlib.contextmanager
    def _stored(self, X: object, *callbacks: Sink) -> Iterator[RunContext]:
        """Yield the context in which a store is decided on."""
        with fit_context(as_data(X, estimator=self)[0], self._place, fan_out(callbacks, 0), 0) as ctx:
            yield ctx

    def _fit(self, inputs: Any, config: Any = None) -> Any:
        """Run the method on inputs, set what follows from its model, and warn of what is doubtful; returns the loop's last state."""
        config = self._config() if config is None else config
        with self._context(inputs.data) as ctx:
            run = self._method.start(config, inputs, ctx)
            outcome = run_loop(run.loop, ctx, keep=False)
            end = run.end(outcome.state, ctx)
            model = end.model
            self._set_model(model)
            self._keep_run(run, outcome.state)
            self._set_stop(end.summary.get("stop"))
            messages = run.all_warnings(outcome.state, model, ctx, outcome.history, end.summary)
            fit = Fit(self._method, run.config, run.inputs, grams=kept_grams(run.loop))
            del run  # what its loop holds makes room for the fits of a calibration
            calibrated = self._with_calibration(fit, model, ctx)
            if calibrated is not model:
                self.model_ = calibrated
        self._set_history(outcome.history)
        for message in messages:
            warn_user(message)
        if hasattr(self, "converged_"):  # (a path that is followed to its end has no tolerance to miss)
            self._warn_unfinished(self.converged_, end.contradiction or ("" if self.converged_ else self._unfinished(outcome.state)))
        return outcome.state

    def _keep_run(self, run: Method, state: LoopState) -> None:
        """Keep what later calls need of a fit beside its model."""

    def _with_calibration(self, fit: Fit, model: Any, ctx: RunContext) -> Any:
        """Return the model with the calibration that is part of a fit, or keep what it can be made from later."""
        return model

    def _set_stop(self, stop: str | None) -> None:
        """Set why the fit ended; where its bounds contradict each other it has not converged, and its gaps are not known."""
        self.stop_reason_ = stop
        if stop == BOUNDS:
            self.converged_ = False
            for name in (f"{gap}_" for gap in ("dual_gap", *GAPS)):
                if name in vars(self):
                    setattr(self, name, np.nan * getattr(self, name))

    def _unfinished(self, state: LoopState) -> str:
        """Return what to say of a fit that ended before its tolerance was reached; nothing where the user did not ask for one."""
        return f"max_iter={self.get_params()['max_iter']} ended the fit before tol={self.get_params()['tol']:g} was reached"

    def _warn_unfinished(self, converged: bool, message: str) -> None:
        """Set ``converged_``, and warn if it is false and there is something to say."""
        self.converged_ = converged
        if message and not converged:
            warn_user(message, ConvergenceWarning)

    def _set_model(self, model: object) -> None:
        """Set the fitted attributes that follow from the model; subclasses add theirs."""
        self.model_ = model

    def _chart_tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return the tables that displays draw from."""
        names = known_names(self)
        return self._method.model_tables(self.model_, None if names is None else [str(name) for name in names])

    def _set_history(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Set ``history_``: one array per figure over the iterations."""
        self.history_ = history_arrays(rows)

    def __getstate__(self) -> dict[str, Any]:
        # Copies carry no training data.
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_training"}

    @classmethod
    def from_model(cls, model: Any, params: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Self:
        """Return the fitted estimator of a saved model."""
        estimator = cls(**{name: value for name, value in cls._model_params(model, params).items() if name in cls().get_params()})
        classes = json.loads(getattr(model, "classes_json", "null"))
        if classes is not None:
            estimator.classes_ = np.asarray(classes)
        if hasattr(model, "n_features"):
            estimator.n_features_in_ = model.n_features
        estimator._set_model(model)
        estimator._set_history(list(history))
        return estimator

    @classmethod
    def _model_params(cls, model: object, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parameters that a saved model was fitted with."""
        return params


@contextlib.contextmanager
def method_context(
    data: Any, place: str | None, seed: int, all_memory: bool = False, emit: Sink = ignore, passes: Sink = ignore
) -> Iterator[RunContext]:
    """Yield the context of a fit: its passes run in a ``place``; ``all_memory``: only one beyond this machine's memory is refused."""
    with fit_context(data, place, emit, seed, passes) as ctx:
        yield replace(ctx, warn=warn_user, tell=once(warn_user), limit=machine_memory() if all_memory else None)


def predictor_of(estimator: MethodEstimator) -> Predictor:
    """Return what decides with the model of a fitted estimator."""
    return type(estimator)._method.predictor(estimator.model_)
