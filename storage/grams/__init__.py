"""Gram stores: symmetric kernel matrices stored as blocks of row pairs."""
