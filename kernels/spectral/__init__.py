"""Kernels learnt from pairs of rows, embeddings and nearest neighbours."""
