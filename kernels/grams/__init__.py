"""Kernel functions, and the blocks of Gram matrices computed from them."""
