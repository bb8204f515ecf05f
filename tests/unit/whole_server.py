"""A whole server in this process, asked without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from wait import HANG

from shoal.config.load import load
from shoal.web.application import Application

OWN = "an-own-token-that-is-long-enough"
BEARER = {"Authorization": f"Bearer {OWN}"}
ADDRESS = ("192.0.2.7", 4711)


@asynccontextmanager
async def serving(
    folder: Path, token: str = OWN, client: tuple[str, int] = ADDRESS, **settings: str
) -> AsyncIterator[tuple[Application, httpx.AsyncClient]]:
    # A test may ask as often as a quick machine can.
    given = {"queue": f"sqlite:///{folder}/queue.db", "token": token, "api_rate": "100000", **settings}
    application = Application(load(given, env={}), host="127.0.0.1", maintenance=False)
    async with application:
        transport = httpx.ASGITransport(application.startup_gate, client=client)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080", timeout=HANG) as asking:
            yield application, asking
