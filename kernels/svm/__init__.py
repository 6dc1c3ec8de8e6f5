"""Dual problems of support vector machines and other kernel models, and their solvers."""
