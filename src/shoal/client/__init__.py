"""The Python client: enqueue typed tasks, wait for their results, and write workers for them."""
