"""Calibration of probabilities: the folds, the fits without them, and what is fitted to their decision values."""
