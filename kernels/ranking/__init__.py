"""Ranking with kernels: random walks, tags and pairs."""
