"""Worker processes: started, found, asked, watched; and the executor that works on them."""
