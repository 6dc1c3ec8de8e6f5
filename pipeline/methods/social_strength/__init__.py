"""Strength of ties between users."""
