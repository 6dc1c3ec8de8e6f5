"""Reading of text files, for data and for all accompanying files."""
