"""The group lasso for data streams and batches, for one task and for many."""
