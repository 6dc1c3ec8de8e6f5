"""Ridge regression as a method: gradient steps with a certificate."""

import numpy as np

from gramplane.pipeline.core.method import Method
from gramplane.pipeline.core.result import Result, Step
from gramplane.pipeline.inputs.labels import store_inputs
from gramplane.pipeline.inputs.scores import held_out_rows, scores_of
from gramplane.pipeline.models.linear import LinearModel
from gramplane.storage import DataError

from .config import RidgeConfig
from .problem import RidgeProblem, RidgeState


class Ridge(Method):
    """Ridge regression in the driver."""

    name, config, state, models = "ridge", RidgeConfig, RidgeState, (LinearModel,)

    def read_inputs(self, config, resources, extra):
        inputs = store_inputs(resources, self.name)
        if inputs.classes is not None:
            raise DataError("the target holds classes; ridge needs numbers (--task regression)", resources.data.url)
        return config, inputs.without(held_out_rows(extra, inputs.target, resources.seed, None))

    def problem(self, config, inputs, resources):
        return RidgeProblem(config, inputs, resources)

    def init(self, problem, resources):
        return problem.state(0, np.zeros(problem.X.shape[1]))

    def step(self, problem, state, resources):
        new = problem.state(state.iteration + 1, state.coef - problem.length * problem.gradient(state.coef))
        scores = scores_of(problem.inputs, (problem.X @ new.coef)[None])  # of rows held out, too
        return Step(new, {"objective": new.objective, "gap": new.gap, **scores})

    def result(self, problem, state, resources):
        figures, text = {"objective": state.objective, "gap": state.gap}, problem.config.model_dump_json()
        model = LinearModel(text, "null", "null", len(state.coef), state.coef[None], np.zeros(1), figures=figures)
        return Result(model, state.stop, objective=state.objective, gap=state.gap, certified_over="all coefficients")

    def tables(self, model, names=None, fit=None):
        return {"selected": [{"feature": f"x{j}", "weight": float(w)} for j, w in enumerate(model.coef[0])]}
