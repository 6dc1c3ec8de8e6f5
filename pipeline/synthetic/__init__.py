"""Data made by formula, for examples, tests and benchmarks."""
