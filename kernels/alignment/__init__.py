"""Alignment of kernels with a target, and the selection path along it."""
