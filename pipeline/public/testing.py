"""Checks for a method that you write yourself: every method of gramplane passes the same checks."""

from typing import TYPE_CHECKING

from . import lazy_names

if TYPE_CHECKING:
    from gramplane.workflows.battery import MethodCase as MethodCase
    from gramplane.workflows.worker_battery import check_method as check_method

_HOMES = {"MethodCase": "workflows.battery", "check_method": "workflows.worker_battery"}

__all__ = sorted(_HOMES)
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)
