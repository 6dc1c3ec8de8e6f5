"""Multiple kernel learning on latent groups of tasks."""
