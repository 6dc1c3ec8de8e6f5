"""Random walks, tags and pairs: ranking on kernels."""
