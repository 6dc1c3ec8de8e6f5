"""Gram stores: symmetric matrices in blocks of pairs."""
