"""Online learners of a fit on a stream, and the linear model of a learner."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ....kernels.group_lasso.penalty import GroupPenalty, Groups, stream_groups
from ....kernels.group_lasso.streams import StreamLearner, StreamPoint
from ....storage import ColumnScale
from ...inputs.labels import Inputs
from ...models.linear import LinearModel, raw_coefficients
from .config import ClassLoss, GroupLassoConfig
from .inputs import build_penalty, fit_loss


@dataclass(frozen=True)
class LearnerFactory:
    """Creates the learners of a fit."""

    config: GroupLassoConfig
    penalty: GroupPenalty
    labels: np.ndarray  # of the groups
    loss: ClassLoss
    n_machines: int  # they share the stream

    @classmethod
    def create(cls, config: GroupLassoConfig, inputs: Inputs, n_features: int) -> LearnerFactory:
        """Return the factory of a fit. Raises ValueError for unsuitable groups, loss or algorithm."""
        config = config.resolved(is_stream=True)
        penalty, labels = build_penalty(config, n_features, inputs.groups)
        if config.algorithm == "fobos" and penalty.overlapping:
            raise ValueError("groups overlap, but algorithm='fobos' needs a partition of the features; use algorithm='da' or 'fista'")
        return cls(config, penalty, labels, fit_loss(config, inputs.classes), inputs.n_machines)

    @cached_property
    def groups(self) -> Groups:
        """The penalty in the form that compiled loops read."""
        return stream_groups(self.penalty, float(self.config.lam))

    @property
    def state_bytes(self) -> int:
        """Memory in bytes of a learner: the sums, their mean if iterates are averaged, one bit per feature, and two numbers per group."""
        width = self.penalty.n_features * (2 if self.config.average else 1)
        return self.n_machines * (8 * (width + 2 * self.penalty.n_groups) + self.penalty.n_features // 8 + 1)

    def learner(self, point: StreamPoint | None = None) -> StreamLearner:
        """Return a learner, started or continued at a point of its stream."""
        config, algorithm = self.config, "fobos" if self.config.algorithm == "fobos" else "da"
        steps: dict[str, Any] = {"gamma": config.gamma, "rho": config.rho, "batch": config.batch_size, "average": config.average}
        options = {"loss": self.loss, **steps, "intercept": config.fit_intercept, "algorithm": algorithm, "groups": self.groups}
        learner = StreamLearner(self.penalty, float(config.lam), self.n_machines, **options)
        return learner if point is None else learner.restore(point)

    def model(
        self, point: StreamPoint, classes: Sequence[Any] | None, scale: ColumnScale, n_rows: int = 0, mean_loss: float = float("nan")
    ) -> LinearModel:
        """Return the model at a point of a stream with column scales ``scale``. ``mean_loss`` is the mean loss of all rows, or NaN if the
        rows are no longer available.
        """
        learner = self.learner(point)
        weights, biases, omega = learner.weights(self.config.average)
        figures = {"objective": float(mean_loss + omega.sum()), "gap": float("nan"), "rounds": float(learner.rounds), "rows": float(n_rows)}
        figures |= {"lam": float(self.config.lam)}
        return build_model(
            self.config,
            classes,
            scale,
            weights,
            biases,
            figures,
            group_arrays(self.penalty, self.labels, np.flatnonzero(learner.active()), weights),
        )


def build_model(
    config: GroupLassoConfig,
    classes: Sequence[Any] | None,
    scale: ColumnScale,
    weights: np.ndarray,
    biases: np.ndarray,
    figures: dict[str, float],
    groups: dict[str, np.ndarray],
) -> LinearModel:
    """Convert weights ``(n_machines, n_features)`` of scaled columns into a model for unscaled columns."""
    coef, intercepts = raw_coefficients(weights, biases, scale.factor, scale.shift)
    texts = config.model_dump_json(), json.dumps(None if classes is None else list(classes)), "null"
    row_scaled = scale.kind == "unit-row"
    model = LinearModel(*texts, weights.shape[1], coef, intercepts, row_scaled=row_scaled, figures=figures, arrays=groups)
    return model.scaled_by(scale.factor)


def group_arrays(penalty: GroupPenalty, labels: np.ndarray, active: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Return the arrays that a model stores about its active groups: label, norm of the weights, and number of features of each group.

    ``weights`` is ``(n_machines, n_features)``.
    """
    sizes, members = np.diff(penalty.indptr)[active], penalty.members[penalty.copies_of(active)]
    squares = np.square(weights[:, members]).sum(axis=0)
    norms = np.sqrt(np.bincount(np.repeat(np.arange(len(active)), sizes), squares, len(active)))
    return {"active_groups": labels[active], "group_norms": norms, "group_sizes": sizes}


def selected_figures(model: LinearModel) -> dict[str, Any]:
    """Return, for a model, the number of selected features, the number of selected groups, and the classes."""
    counts = {"n_selected": len(model.features), "n_groups": len(model.arrays["active_groups"]), "n_features": model.n_features}
    return {**counts, "classes": json.loads(model.classes_json)}
