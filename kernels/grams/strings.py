"""Counts of k-mers: the feature map of the spectrum kernel (Leslie, Eskin and Noble, 2002)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from ..arrays import Array


def kmer_counts(blocks: Sequence[Array], k: int) -> list[sp.csr_array]:
    """Return the float64 counts of all k-mers, k characters long, in the strings of each block: one column per k-mer of any block. Strings
    shorter than k have no k-mer. Columns ascend inside a row. The column of a k-mer depends on all blocks, so only inner products between
    their rows have a meaning.
    """
    texts = [text for block in blocks for text in block]
    points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    symbols, lengths = np.unique(points, return_inverse=True)[1], np.array([len(text) for text in texts], dtype=np.int64)
    codes, rows = _find_windows(symbols, lengths, k)
    counts = sp.coo_array((np.ones(len(codes)), (rows, codes)), shape=(len(lengths), int(codes.max(initial=-1)) + 1)).tocsr()
    counts.sum_duplicates()
    return [counts[first:last] for first, last in itertools.pairwise(np.cumsum([0, *(len(block) for block in blocks)]))]


def _find_windows(symbols: Array, lengths: Array, k: int) -> tuple[Array, Array]:
    """Return a number for every window of k characters inside one string, equal for equal windows, and its string."""
    starts = np.cumsum(lengths) - lengths
    per_row = np.maximum(lengths - k + 1, 0)
    rows = np.repeat(np.arange(len(lengths)), per_row)
    first = np.arange(len(rows)) - np.repeat(np.cumsum(per_row) - per_row, per_row) + np.repeat(starts, per_row)
    return _rank_windows(symbols, first, k), rows


def _rank_windows(symbols: Array, first: Array, k: int) -> Array:
    """Return the rank of every window of length k: a number with a digit per character, ranked again whenever it becomes too long."""
    base = int(symbols.max(initial=0)) + 1
    names, bound = symbols[first].astype(np.int64), base
    for offset in range(1, k):
        if bound > (1 << 62) // base:
            kinds, names = np.unique(names, return_inverse=True)
            bound = len(kinds)
        names, bound = names * base + symbols[first + offset], bound * base
    return np.unique(names, return_inverse=True)[1]
