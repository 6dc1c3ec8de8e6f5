"""Conversion of any input to a block store in bounded memory (`ingest`), and of precomputed Gram matrices to a Gram store
(`ingest_grams`).
"""

from .api import ingest
from .grams import ingest_grams

__all__ = ["ingest", "ingest_grams"]
