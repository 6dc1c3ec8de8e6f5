"""Runs of methods: fit, resume, tune, predict."""
