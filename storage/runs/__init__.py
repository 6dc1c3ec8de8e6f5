"""Run directories: checkpoints, models and records of workflow steps."""
