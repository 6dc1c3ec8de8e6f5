"""Written by .ci/make_package.py."""

from gramplane.workflows.battery import MethodCase as MethodCase
from gramplane.workflows.worker_battery import check_method as check_method

__all__ = ['MethodCase', 'check_method']
