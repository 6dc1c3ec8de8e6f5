"""Feature Generating Machine."""
