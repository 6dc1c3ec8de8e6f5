"""Input of any kind to a block store, in bounded memory: see `ingest`."""

from .api import ingest

__all__ = ["ingest"]
