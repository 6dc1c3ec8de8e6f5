"""The methods, one folder each, named like the commands. No method imports another."""
