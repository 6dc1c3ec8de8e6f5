"""Multiple kernel learning for many tasks."""
