"""A control room for tests of the API that people write programs against: batches and jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import pytest
from local_fleet import LocalFleet, local_fleet
from server_process import ServerProcess, running_server
from small_site import small_site

from shoal.queue import document_kinds as kinds
from shoal.runs.request import read_template

QUICK = {"lease": "4s", "heartbeat": "1s", "workers": 1}


def server_for(fleet: LocalFleet, **settings: Any) -> AbstractContextManager[ServerProcess]:
    settings = {"allow_private": "127.0.0.1"} | QUICK | settings
    return running_server(fleet.queue, folder=fleet.user.folder, **settings)


@pytest.fixture(scope="module")
def fleet_and_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalFleet, ServerProcess]]:
    """One control room over a file, for what does not depend on the queue and kills nobody."""
    with local_fleet("sqlite", tmp_path_factory.mktemp("room")) as fleet, server_for(fleet) as api_server:
        yield fleet, api_server


@pytest.fixture
def shared_fleet(fleet_and_server: tuple[LocalFleet, ServerProcess]) -> Iterator[LocalFleet]:
    """With a site that nobody has asked before: a host's pace is remembered."""
    with small_site() as fleet_and_server[0].site:
        yield fleet_and_server[0]


@pytest.fixture
def api_server(fleet_and_server: tuple[LocalFleet, ServerProcess]) -> ServerProcess:
    return fleet_and_server[1]


def keep(fleet: LocalFleet, name: str, text: str) -> None:
    """Put a template into the queue."""
    place = fleet.user.folder / f"{name}.yaml"
    place.write_text(text)
    packed = msgspec.json.encode(read_template(place)).decode()
    fleet.ask(lambda queue: queue.save_document(kinds.TEMPLATE, name, packed))
