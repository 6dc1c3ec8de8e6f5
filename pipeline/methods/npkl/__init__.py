"""Non-parametric kernel learning from pairs of rows."""
