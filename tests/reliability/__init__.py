"""Faults that users met, walked again from the outside: files, signals, other processes, the command line as it is typed."""
