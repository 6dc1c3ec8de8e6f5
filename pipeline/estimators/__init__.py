"""Common parts of the scikit-learn estimators of all methods."""
