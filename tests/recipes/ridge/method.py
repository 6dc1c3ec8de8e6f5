"""Ridge regression as a method: from a store to a loop, from its state to a linear model."""

import numpy as np

from gramplane.pipeline.core.memory import driver_plan, refuse
from gramplane.pipeline.grams.sources import all_rows
from gramplane.pipeline.inputs.labels import store_inputs
from gramplane.pipeline.method import Method
from gramplane.pipeline.models.linear import LinearModel
from gramplane.pipeline.models.linear_predict import LinearPredictor

from .config import RidgeConfig
from .loop import RidgeLoop


class Ridge(Method):
    """Ridge regression in the driver."""

    name, config_type, models = "ridge", RidgeConfig, {LinearModel: LinearPredictor()}

    @classmethod
    def read_inputs(cls, config, ctx, extra):
        return config, store_inputs(ctx, cls.name)

    @classmethod
    def build_loop(cls, config, inputs, ctx):
        refuse(cls.name, cls.items(inputs.data), ctx.driver_memory, "fewer rows")
        X = all_rows(inputs.data)
        return RidgeLoop(config, X.toarray() if hasattr(X, "toarray") else X, np.asarray(inputs.target, np.float64))

    @staticmethod
    def items(data):
        return (("rows", 16 * data.n_rows * data.n_cols),)

    @property
    def plan(self):
        return {**driver_plan(self.items(self.inputs.data)), "iterations_at_most": self.config.max_iter, "task_bytes": 0}

    def model(self, state, ctx):
        figures = {"objective": state.objective, "gap": state.gap}
        return LinearModel(self.config.model_dump_json(), "null", "null", len(state.coef), state.coef[None], np.zeros(1), figures=figures)

    def summary(self, state, model):
        return {"objective": state.objective, "gap": state.gap, "certified_over": "all coefficients", "stop": state.stop}

    def tables(self, state, model):
        return {"selected": [{"feature": f"x{j}", "weight": float(w)} for j, w in enumerate(state.coef)]}
