"""Two-layer multiple kernel learning."""
