"""Kernels from pairs of rows, embeddings, neighbours."""
