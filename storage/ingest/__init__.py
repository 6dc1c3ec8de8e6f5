"""Input of any kind to a block store, in bounded memory: see `ingest`; precomputed Gram matrices to a Gram store: `ingest_grams`."""

from .api import ingest
from .grams import ingest_grams

__all__ = ["ingest", "ingest_grams"]
