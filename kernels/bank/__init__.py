"""Many Gram matrices of the same rows in memory."""
