"""Hundreds of crawls with crashes, zombies, outages and clock steps, each of which keeps every promise."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from simulation import AcknowledgesFailures, Broken, IgnoresSlots, Simulation, TakesStale, run_virtually

from shoal.queue.base import Queue

SEEDS = 60 if os.environ.get("SHOAL_QUICK") else 300  # `make quick` is for the daily loop
CHUNK = 30


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Faults are logged, and here they are all there is."""
    logging.getLogger("shoal").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("shoal").setLevel(logging.NOTSET)


def violations(seed: int, wrap: Callable[[Queue], Any] = lambda queue: queue) -> list[str]:
    async def run_to_end() -> list[str]:
        simulation = Simulation(seed, wrap)
        await simulation.run_to_end()
        return await simulation.violations()

    return run_virtually(run_to_end())


def seeds(chunk: int) -> Iterable[int]:
    only = os.environ.get("SHOAL_SEED")
    return range(chunk, chunk + CHUNK) if only is None else [int(only)]


@pytest.mark.parametrize("chunk", range(0, SEEDS, CHUNK))
def test_whatever_happens_every_page_is_recorded_once_and_every_host_is_spared(chunk: int) -> None:
    for seed in seeds(chunk):
        try:
            said = violations(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed} broke; replay it with SHOAL_SEED={seed}") from error
        assert not said, f"replay with SHOAL_SEED={seed}: " + "; ".join(said)


def test_the_same_seed_is_the_same_story() -> None:
    def story() -> tuple[Any, ...]:
        async def run_to_end() -> tuple[Any, ...]:
            simulation = Simulation(7)
            await simulation.run_to_end()
            return simulation.crashes, [hit for server in simulation.web.servers.values() for hit in server.hits]

        return run_virtually(run_to_end())

    assert story() == story()


@pytest.mark.parametrize(
    ("bug", "symptom"), [(TakesStale, "times"), (IgnoresSlots, "apart"), (AcknowledgesFailures, "missing")]
)
def test_a_planted_bug_is_found(bug: type[Broken], symptom: str) -> None:
    assert any(symptom in said for seed in range(100) for said in violations(seed, bug)[:1])
