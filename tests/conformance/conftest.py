"""One fixture runs the whole suite on every backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from conformance.world import Opener, World, backends

BACKENDS = backends()


@pytest.fixture(params=list(BACKENDS))
def queue_factory(request: pytest.FixtureRequest) -> Opener:
    return BACKENDS[request.param]


@pytest.fixture
async def world(queue_factory: Opener, tmp_path: Path) -> AsyncIterator[World]:
    world = World(queue_factory, tmp_path)
    world.queue = await world.open()
    yield world
    await world.close()
