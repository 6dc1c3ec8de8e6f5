"""RunContext, by the name of its old place."""

from ..core.resources import RunContext

__all__ = ["RunContext"]
