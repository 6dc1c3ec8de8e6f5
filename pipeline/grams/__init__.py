"""Gram matrices in blocks: where they lie, how they are filled, summed and read."""
