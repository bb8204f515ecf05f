"""What is asked for over HTTP, one noun per file; each has a `router`."""
