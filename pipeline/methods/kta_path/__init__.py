"""Kernel selection path."""
