"""Every backend agrees with the model, whatever happens."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fake_clock import FakeClock

from conformance.harness import Opener, backends, model_opener
from conformance.state_machine import drive

EXAMPLES = {
    "redis": 40,
    "postgres": 25,
    "http": 15,
    "rabbitmq": 3,
    "shards": 12,
}  # each step is a few trips to a server
STEPS = {"shards": 30}
MACHINES = {name: lambda opener=opener: opener for name, opener in backends().items() if name != "shards-redis"}
MACHINES["model"] = model_opener  # a new one for every history


async def try_to_open(opener: Opener, folder: Path) -> None:
    """A missing server is to be noticed here, not in the middle of a history."""
    await (await opener(folder, FakeClock())).close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", MACHINES)
def test_any_history_leaves_the_account_right(backend: str, tmp_path: Path) -> None:
    asyncio.run(try_to_open(MACHINES[backend](), tmp_path))
    drive(MACHINES[backend], examples=EXAMPLES.get(backend, 60), steps=STEPS.get(backend, 40))
