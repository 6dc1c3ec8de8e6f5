"""What every method is built on."""
