"""Connections to a broker, cut as a network that fails would."""

from __future__ import annotations

import random
from urllib.parse import quote

from servers.rabbitmq import Server


def cut_connection(server: Server) -> bool:
    """One at random; False if it was gone already, or none is shown yet."""
    names = [it["name"] for it in server.manage("GET", "/api/connections", expect=None) or ()]
    if not names:
        return False
    return server.manage("DELETE", f"/api/connections/{quote(random.choice(names), safe='')}", expect=None) is not None
