"""Fixtures for acceptance tests: the demo site, served for real, and fleets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from flotilla import KINDS, Fleet, fleet_of

from shoal.demo.server import Server, serve
from shoal.demo.site import Site


@pytest.fixture
async def demo() -> AsyncIterator[Server]:
    async with await serve(Site()) as server:
        yield server


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to run in, with nothing of the caller's settings."""
    import os

    for name in list(os.environ):
        if name.startswith("SHOAL_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


@pytest.fixture(params=KINDS)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """Workers and whoever gives them work, on a queue of every kind in turn."""
    with fleet_of(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Fleet]:
    """The same on a file, for what does not depend on the kind of queue."""
    with fleet_of("sqlite", tmp_path) as made:
        yield made
