"""Rule ensembles on the lattice of conjunctions."""
