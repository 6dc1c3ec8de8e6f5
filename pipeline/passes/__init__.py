"""Block passes that every system may use."""
