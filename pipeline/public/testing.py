"""For those who write a method of their own: the checks that every method of gramplane passes."""

from . import lazy_names

_HOMES = {"MethodCase": "workflows.battery", "check_method": "workflows.worker_battery"}

__all__ = sorted(_HOMES)
__getattr__ = lazy_names(__name__, _HOMES)
