"""The positive part of a large symmetric matrix, and its spectrum."""
