"""Feature selection over many tasks."""
