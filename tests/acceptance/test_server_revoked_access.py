"""Those who were let in once: what they may not read, and when they have to go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import httpx
import msgspec
import pytest
from server_process import ServerProcess, running_server
from wait import HANG
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

OWN = "an-own-token-that-is-long-enough"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(
        f"sqlite:///{tmp_path_factory.mktemp('running_server')}/queue.db", "--no-maintenance", token=OWN
    ) as opened:
        yield opened


def token_of(made: ServerProcess, name: str, scope: str) -> dict[str, str]:
    answer = made.post("/api/v1/tokens", {"name": name, "scopes": [scope]})
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['token']}"}


def test_a_stream_ends_when_the_token_that_opened_it_is_removed(made: ServerProcess) -> None:
    headers = token_of(made, "watcher", "read")
    with httpx.stream("GET", f"{made.url}/api/v1/events", headers=headers, trust_env=False) as stream:
        parts = stream.iter_bytes()
        assert next(parts).startswith(b": hello")
        assert made.delete("/api/v1/tokens/watcher").status_code == 204
        began = time.monotonic()
        for _ in parts:
            assert time.monotonic() - began < HANG, "it goes on"


async def test_so_does_a_websocket(made: ServerProcess) -> None:
    headers = token_of(made, "listener", "read")
    url = made.url.replace("http", "ws") + "/ws"
    async with connect(url, additional_headers=headers, proxy=None) as socket:
        await socket.recv()
        assert made.delete("/api/v1/tokens/listener").status_code == 204
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(HANG):
                while True:
                    await socket.recv()


@pytest.mark.parametrize("kind", ["token", "session-key", "webhook.key", "idempotency.00", "urls.00"])
def test_who_works_for_the_server_has_no_business_with_its_own_documents(made: ServerProcess, kind: str) -> None:
    headers = token_of(made, f"w-{kind}", "work")
    for verb, more in (("documents", {}), ("document", {"name": "x"}), ("save_document", {"name": "x", "text": "x"})):
        body = msgspec.msgpack.encode({"kind": kind} | more)
        answer = made.post(f"/api/v1/queue/{verb}", headers=headers, content=body)
        assert answer.status_code == 403, (verb, answer.status_code)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_session_begun_over_tls_never_travels_without(made: ServerProcess, scheme: str) -> None:
    host = made.url.partition("://")[2]
    answer = made.post("/login", data={"token": OWN}, headers={"Origin": f"{scheme}://{host}"})
    assert answer.status_code == 303
    assert ("Secure" in answer.headers["set-cookie"]) == (scheme == "https")
