"""Hierarchical kernel learning."""
