"""Generalized multiple kernel learning."""
