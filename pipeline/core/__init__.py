"""Common to all methods: the protocol of a method, the resources of a fit, and the loop that iterates it."""
