"""Tri-class support vector machine."""
