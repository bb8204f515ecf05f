"""A web site on which everything goes wrong, on purpose: each behaviour has a loopback address of its own."""
