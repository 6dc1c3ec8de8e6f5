"""Sources that are tables or arrays."""
