"""What is computed: estimators, and the runner of methods on stores. Public names are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .registry import METHODS, MethodInfo  # noqa: F401 (public)

_RUNS = {
    "ConfigMismatch": "runs.run",
    "RunOutcome": "runs.run",
    "cross_validate": "runs.tune",
    "load_model": "runs.load",
    "predict_store": "runs.predict_and_score",
    "resume_run": "runs.run",
    "run_method": "runs.run",
    "score_store": "runs.predict_and_score",
    "selection_stability": "runs.stability",
    "tune": "runs.tune",
    "use_client": "estimators.inputs",
}
_HOMES = {**_RUNS, **{name: f"methods.{info.system}.estimator" for info in METHODS.values() for name in info.public_names}}

__all__ = sorted([*_HOMES, "METHODS", "MethodInfo"])  # pyright: ignore[reportUnsupportedDunderAll] (names of the stub)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)  # once
    return value


def __dir__() -> list[str]:
    return __all__
