"""Small faults planted into the product one at a time, to see which of them the tests notice."""
