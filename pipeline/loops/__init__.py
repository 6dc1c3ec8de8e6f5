"""Outer iterations on explicit states, and what runs them."""
