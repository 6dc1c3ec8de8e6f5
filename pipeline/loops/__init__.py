"""Outer iterations of methods, as functions of explicit states."""
