"""The server: HTTP API, dashboard and metrics over one queue. Heavy, so imported late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.config.queue_address import QueueAddress
    from shoal.web.mounted import MountedServer


def app(url: QueueAddress | None = None, **settings: Any) -> MountedServer:
    """The dashboard and the API as an ASGI application, to be mounted in another: `host.mount("/shoal", app())`.

    What it is given is as for `shoal.connect`.
    """
    from shoal.config.queue_address import settings_for
    from shoal.web.mounted import MountedServer

    return MountedServer(settings_for(url, settings))
