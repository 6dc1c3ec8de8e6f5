"""Group lasso on streams of rows and in batch."""
