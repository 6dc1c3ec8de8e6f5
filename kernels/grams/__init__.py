"""Kernel functions, and the Gram blocks made from them."""
