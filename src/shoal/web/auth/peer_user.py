"""The peer's user, as requests know it: asked once per connection."""

from __future__ import annotations

from shoal.files.peer_user import is_supported, peer_uid

__all__ = ["CONNECTION_KEY", "is_supported", "peer_uid"]

CONNECTION_KEY = "shoal.connection"  # in a request's scope: what was found out about its connection
