"""Gram matrices in blocks: where they are stored, how they are computed, summed and read."""
