"""Fixtures for acceptance tests: the demo site, served for real; fleets; a control room and its browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from api_fixtures import api_server, fleet_and_server, shared_fleet
from backend_urls import QUEUE_KINDS, backend_url
from browser import chromium
from busy_queue import populate
from fetch_site import make_certificate
from local_fleet import LocalFleet, local_fleet
from server_process import ServerProcess, running_server
from servers import rabbitmq

from shoal.demo.server import Server, serve
from shoal.demo.site import Site
from shoal.queue.base import Queue
from shoal.queue.sqlite import SqliteQueue

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["api_server", "fleet_and_server", "shared_fleet"]


@pytest.fixture
async def demo() -> AsyncIterator[Server]:
    async with await serve(Site()) as server:
        yield server


@pytest.fixture
def clean_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to run in, with nothing of the caller's settings."""
    import os

    for name in list(os.environ):
        if name.startswith("SHOAL_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


@pytest.fixture(params=QUEUE_KINDS)
def url(request: pytest.FixtureRequest, clean_folder: Path) -> str:
    """The URL of an empty queue, of every kind in turn."""
    return backend_url(request.param, clean_folder)


@pytest.fixture
def here(clean_folder: Path) -> str:
    """One queue, for what does not depend on its kind."""
    return backend_url("sqlite", clean_folder)


@pytest.fixture(params=QUEUE_KINDS)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalFleet]:
    """Workers and whoever gives them work, on a queue of every kind in turn."""
    with local_fleet(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def sqlite_fleet(tmp_path: Path) -> Iterator[LocalFleet]:
    """The same on a file, for what does not depend on the kind of queue."""
    with local_fleet("sqlite", tmp_path) as made:
        yield made


@pytest.fixture
def redis_fleet(tmp_path: Path) -> Iterator[LocalFleet]:
    """On a server, for what several processes do."""
    with local_fleet("redis", tmp_path) as made:
        yield made


@pytest.fixture
def broker() -> Iterator[str]:
    """A virtual host of RabbitMQ, by its URL."""
    with rabbitmq.vhost() as vhost:
        yield rabbitmq.shared().url(vhost)


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Queue]:
    """A ledger in a file."""
    queue = await SqliteQueue.open(str(tmp_path / "state.db"))
    yield queue
    await queue.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue with a few minutes behind it; nobody works on it any more."""
    path = tmp_path_factory.mktemp("shown") / "shoal.db"
    # In a thread of its own: a browser may have an event loop in this one.
    with ThreadPoolExecutor(1) as other:
        other.submit(lambda: asyncio.run(populate(path, minutes=2, scale=0.03))).result()
    return path


@pytest.fixture(scope="module")
def server(shown: Path) -> Iterator[ServerProcess]:
    """Shows it to everybody."""
    with running_server(f"sqlite:///{shown}", "--no-maintenance") as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made
