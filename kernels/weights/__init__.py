"""Sets of kernel weights, and the small programs over them."""
