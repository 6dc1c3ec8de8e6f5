"""Many tasks: shared weights, shared subspaces, latent groups."""
