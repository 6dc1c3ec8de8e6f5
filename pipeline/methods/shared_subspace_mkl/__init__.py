"""Multiple kernel learning in a subspace that tasks share."""
