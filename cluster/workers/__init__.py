"""Worker processes: starting, connecting, checking and watching them; and the executor that uses them."""
