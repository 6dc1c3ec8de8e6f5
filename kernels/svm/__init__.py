"""Duals of kernel machines and their solvers."""
