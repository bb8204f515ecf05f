"""One fixture runs the whole suite on every backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from servers.redis import RedisServer, own_server

from conformance.harness import Opener, QueueHarness, backends
from conformance.redis_backend import LOGGED

BACKENDS = backends()


@pytest.fixture(params=list(BACKENDS))
def queue_factory(request: pytest.FixtureRequest) -> Opener:
    return BACKENDS[request.param]


@pytest.fixture(scope="module")
def own() -> Iterator[RedisServer]:
    with own_server(*LOGGED) as server:
        yield server


@pytest.fixture
async def harness(queue_factory: Opener, tmp_path: Path) -> AsyncIterator[QueueHarness]:
    harness = QueueHarness(queue_factory, tmp_path)
    harness.queue = await harness.open()
    yield harness
    await harness.close()
