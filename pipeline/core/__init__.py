"""What every method has in common: its protocol, where it runs, the loop around it."""
