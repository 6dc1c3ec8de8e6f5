"""Block passes that all methods can use."""
