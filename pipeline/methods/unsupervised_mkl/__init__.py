"""Unsupervised multiple kernel learning."""
