"""What the scikit-learn classes of all systems share."""
