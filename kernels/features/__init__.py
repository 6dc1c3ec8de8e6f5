"""Columns: statistics, scores, groups, products of two, additive maps."""
