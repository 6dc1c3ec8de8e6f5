"""The group lasso, on streams of rows and in batch, for one task and for many."""
