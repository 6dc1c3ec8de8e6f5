"""Run directories: checkpoints, models, records of steps."""
