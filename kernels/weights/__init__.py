"""Feasible sets of kernel weights, and small optimisation problems over them."""
