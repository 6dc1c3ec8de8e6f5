"""Alignment of kernels with a target, and the selection path based on it."""
