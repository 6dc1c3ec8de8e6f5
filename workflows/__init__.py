"""Command line, workflow files, reports, cron and Airflow. Public names are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .airflow_dag import build_dag
    from .checking import CheckFailed, ConfigError
    from .report import write_report
    from .runner import WorkflowOutcome, run_workflow
    from .schema import Workflow, WorkflowSpec, read_workflow

_HOMES = {
    "airflow_dag": ("build_dag",),
    "checking": ("CheckFailed", "ConfigError"),
    "report": ("write_report",),
    "runner": ("WorkflowOutcome", "run_workflow"),
    "schema": ("Workflow", "WorkflowSpec", "read_workflow"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CheckFailed",
    "ConfigError",
    "Workflow",
    "WorkflowOutcome",
    "WorkflowSpec",
    "build_dag",
    "read_workflow",
    "run_workflow",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
