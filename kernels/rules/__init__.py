"""Conjunctions of propositions: bits, lattice, search."""
