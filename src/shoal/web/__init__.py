"""The control room: HTTP API, live page and metrics over one queue. Heavy, so imported late."""
