"""The control room: HTTP API, live page and metrics over one queue. Heavy: imported by `shoal serve` alone."""
