"""Coloured maximum variance unfolding, minimum volume and structure preserving embedding."""
