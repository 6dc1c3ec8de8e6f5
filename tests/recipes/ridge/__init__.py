"""Ridge regression by gradient steps: the smallest method there can be."""
