"""Estimators that choose parameters by cross-validation: small settings of each, and what a fit alone decides at a point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gramplane import pipeline
from gramplane.pipeline import METHODS

N = 60
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(N, 6))
Y = X[:, 0] - 0.7 * X[:, 1] + 0.5 * _RNG.normal(size=N)
LABELS = np.where(Y > 0, "yes", "no")
THREE = np.digitize(Y, [-0.5, 0.5])
TASKS = np.arange(N) % 3
KERNELS = ["rbf(gamma=0.2)", "linear", "linear[0]"]
RULES = {"n_thresholds": 3, "rest": None, "tol": 1e-6, "refine_cuts": False}
ASIDE = _RNG.normal(size=(N, 1))


@dataclass(frozen=True)
class Search:
    """An estimator that searches: its name, small settings, and how far scores of fits alone may be from its own."""

    name: str
    params: Mapping[str, Any]
    fit: Mapping[str, Any] = field(default_factory=dict)  # further arguments of fit
    three: bool = False  # whether the target has three classes
    atol: float = 1e-9  # of decision values

    def __str__(self) -> str:
        return f"{self.name}-{'-'.join(map(str, [*self.params, *self.fit]))}{'-three' if self.three else ''}"

    @property
    def is_classifier(self) -> bool:
        return "Regressor" not in self.name

    @property
    def y(self) -> np.ndarray:
        return (THREE if self.three else LABELS) if self.is_classifier else Y

    def make(self, **params: Any) -> Any:
        """Return the estimator; columns are not scaled, which without some rows a fit alone would do otherwise."""
        kind = getattr(pipeline, self.name)
        plain = {"scale": None} if "scale" in kind().get_params() else {}
        return kind(**{**plain, **self.params, **params})

    def fitted(self, **params: Any) -> Any:
        return self.make(**params).fit(X, self.y, **self.fit)

    def alone(self, point: Mapping[str, Any], weight: np.ndarray) -> np.ndarray:
        """Return what the estimator without a search decides on all rows at a point, without the rows of weight zero."""
        kind = getattr(pipeline, self.name.removesuffix("CV"))
        known = kind().get_params()
        machine = kind(**{name: value for name, value in {"scale": None, **self.params, **point}.items() if name in known})
        holding_out(machine, weight == 0).fit(X, self.y, **self.fit)
        return decided(machine, self.fit)


def holding_out(machine: Any, mask: np.ndarray) -> Any:
    """Return a machine whose fits hold rows out: they are not learnt from, kernels are normalised over all rows, as folds share them."""
    fit, without = machine._fit, machine._method.without
    machine._fit = lambda inputs, config=None: fit(without(inputs, mask), config)
    return machine


def decided(machine: Any, more: Mapping[str, Any]) -> np.ndarray:
    """Return what a machine decides on all rows."""
    beside = {name: value for name, value in more.items() if name in ("task", "covariates")}
    return machine.decision_function(X, **beside) if hasattr(machine, "decision_function") else machine.predict(X, **beside)


SEARCHES = [
    Search("FGMClassifierCV", {"Cs": 3, "B": 2, "max_rounds": 3}),
    Search("FGMClassifierCV", {"Cs": [0.1, 1.0], "Bs": [1, 2], "max_rounds": 2, "loss": "logistic"}, three=True),
    Search("FGMClassifierCV", {"Cs": [0.5], "B": 2, "max_rounds": 2, "debias": True}, fit={"covariates": ASIDE}),
    Search("FGMRegressorCV", {"Cs": 2, "Bs": [1, 2], "max_rounds": 2}),
    Search("GroupLassoClassifierCV", {"lams": 4, "tol": 1e-9}, atol=1e-3),
    Search("GroupLassoClassifierCV", {"lams": [0.01, 0.1], "groups": [0, 0, 1, 1, 2, 2], "tol": 1e-9}, three=True, atol=1e-3),
    Search("GroupLassoClassifierCV", {"lams": [0.05, 0.01], "algorithm": "da", "gamma": 100.0}),
    Search("GroupLassoRegressorCV", {"lams": 4, "tol": 1e-10}, atol=1e-4),
    Search("GroupLassoRegressorCV", {"lams": 3, "penalty": "sgl", "groups": [0, 0, 1, 1, 2, 2], "tol": 1e-10}, atol=1e-4),
    Search("MKLClassifierCV", {"kernels": KERNELS, "Cs": [0.1, 1.0, 5.0], "tol": 1e-6}, atol=1e-2),
    Search("MKLClassifierCV", {"kernels": KERNELS, "Cs": 2, "vs": [0.0, 1.0], "tol": 1e-6}, three=True, atol=1e-2),
    Search("MKLRegressorCV", {"kernels": KERNELS, "Cs": [0.5, 2.0], "tol": 1e-6}, atol=1e-3),
    Search("MultiTaskMKLClassifierCV", {"kernels": KERNELS, "Cs": [0.1, 1.0], "tol": 1e-6}, fit={"task": TASKS}, atol=1e-2),
    Search("MultiTaskMKLRegressorCV", {"kernels": KERNELS, "Cs": [0.5, 2.0], "ps": [2, 4], "tol": 1e-6}, fit={"task": TASKS}, atol=1e-3),
    Search("KTASelectionPathCV", {"Cs": [0.5, 2.0], "n_machines": 3, "dp": 0.1}, atol=5e-2),
    Search("KTASelectionPathCV", {"kernel": "linear", "Cs": [1.0], "n_machines": 4, "dp": 0.1}, three=True, atol=5e-2),
    Search("RuleEnsembleClassifierCV", {"Cs": [0.1, 1.0], **RULES}, atol=1e-2),
    Search("RuleEnsembleClassifierCV", {"Cs": [0.3, 1.0], "rhos": [1.1, 2.0], **RULES}, fit={"task": TASKS}, atol=1e-2),
]
NAMES = {name for info in METHODS.values() for name in info.cross_validated}
