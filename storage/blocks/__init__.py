"""Block stores: reading and writing columns and rows in chunks."""
