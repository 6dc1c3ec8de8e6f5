"""Conjunctions of propositions: bit representation, lattice and search."""
