"""Feature columns: statistics, scores, groups, pairwise products and additive maps."""
