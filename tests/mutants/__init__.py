"""Planted changes: each breaks one line of the source on purpose, and a named test must notice."""
