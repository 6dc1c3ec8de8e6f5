"""Norms, hulls and kernels on directed acyclic graphs."""
