"""Arithmetic on arrays in memory: formulas, solvers and compiled loops, without file access or distributed tasks."""
