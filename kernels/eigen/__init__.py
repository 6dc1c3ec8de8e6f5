"""The positive part and the spectrum of a large symmetric matrix."""
