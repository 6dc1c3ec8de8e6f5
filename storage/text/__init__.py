"""Reading text: one way for data and for all files beside them."""
