"""Sources that are lines of text."""
