"""One folder a system, named as the commands name it; none imports another."""
