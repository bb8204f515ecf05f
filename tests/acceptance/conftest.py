"""Fixtures for acceptance tests: the demo site, served for real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

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
