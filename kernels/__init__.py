"""Arithmetic on arrays in memory: formulas, solvers, compiled loops. No files, no tasks."""
