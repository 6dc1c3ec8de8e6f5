"""Re-ranking of images by looks and tags."""
