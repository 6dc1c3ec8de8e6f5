"""Training data of methods, from stores and arrays: labels, kernels, tasks, folds."""
