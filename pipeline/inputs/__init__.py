"""From stores and arrays to what methods learn from: labels, kernels, tasks, folds."""
