"""One decision taken apart: its parts add up to the decision value of the row that is named, for every kind of model that has parts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gramplane.kernels.jit import one_thread
from gramplane.pipeline import load_model, run_method, score_store
from gramplane.storage.ingest import ingest
from gramplane.workflows.report.collect import save_score, view_run
from gramplane.workflows.report.tables import decision_table

KERNELS = {"kernels": ["linear", "rbf(gamma=0.5)", "poly(degree=2)"], "v": 1.0}
CASES = {
    "fgm": ("fgm", {"B": 2, "max_rounds": 2}, 2),
    "poly2": ("fgm", {"B": 2, "max_rounds": 2, "feature_map": "poly2"}, 2),
    "classes": ("fgm", {"B": 2, "max_rounds": 2}, 3),
    "numbers": ("fgm", {"B": 2, "max_rounds": 2}, 0),
    "group-lasso": ("group-lasso", {"lam": 0.01}, 2),
    "rules": ("rule-ensemble", {"C": 1.0}, 2),
    "mkl": ("mkl", KERNELS, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_add_up_to_the_decision_value(name: str, tmp_path):
    method, params, n_classes = CASES[name]
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 5)).astype(np.float32)
    target = X[:, 0] + 0.5 * X[:, 1] * X[:, 2]
    y = target if n_classes == 0 else np.digitize(target, np.quantile(target, np.arange(1, n_classes) / n_classes))
    store = ingest((X, y), tmp_path / "store", **({} if n_classes else {"task": "regression"}))
    with one_thread():
        run_method(method, params, data=store.url, run=str(tmp_path / "run"))
        table = score_store(str(tmp_path / "run"), store.url)
    *parts, last = table["decision"]
    assert (
        parts[-1]["part"] == "intercept"
        and (name != "mkl" or len(parts) > 2)
        and sum(part["contribution"] for part in parts) == pytest.approx(last["contribution"], rel=1e-4)
    )
    row, model = int(last["row"]), load_model(tmp_path / "run")
    values = model.predict(X) if n_classes == 0 else np.atleast_2d(model.decision_function(X).T).T
    assert np.abs(values[row] - last["contribution"]).min() < 1e-3
    assert n_classes == 0 or (str(y[row]) == last["true"] == str(model.predict(X)[row]) and last["towards"] in map(str, range(n_classes)))
    json.dumps(table["decision"])
    save_score(tmp_path / "run", store.url, table)
    shown = decision_table(view_run(tmp_path / "run"))
    assert shown is not None and shown.rows[-2][0] == "intercept" and f"Row {row} of store" in shown.note
