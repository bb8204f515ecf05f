"""Private servers that tests start for themselves."""
