"""Kernel learning for many tasks: shared weights, shared subspaces and latent groups."""
