"""Hundreds of crawls with crashes, zombies, outages and clock steps, each of which keeps every promise."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from simulation import AcknowledgesFailures, Broken, IgnoresSlots, TakesStale, World, run_virtually

from shoal.queue.base import Queue

SEEDS = 300
CHUNK = 30


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Faults are logged, and here they are all there is."""
    logging.getLogger("shoal").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("shoal").setLevel(logging.NOTSET)


def complaints(seed: int, wrap: Callable[[Queue], Any] = lambda queue: queue) -> list[str]:
    async def play() -> list[str]:
        world = World(seed, wrap)
        await world.play()
        return await world.complaints()

    return run_virtually(play())


def seeds(chunk: int) -> Iterable[int]:
    only = os.environ.get("SHOAL_SEED")
    return range(chunk, chunk + CHUNK) if only is None else [int(only)]


@pytest.mark.parametrize("chunk", range(0, SEEDS, CHUNK))
def test_whatever_happens_every_page_is_recorded_once_and_every_host_is_spared(chunk: int) -> None:
    for seed in seeds(chunk):
        try:
            said = complaints(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed} broke; replay it with SHOAL_SEED={seed}") from error
        assert not said, f"replay with SHOAL_SEED={seed}: " + "; ".join(said)


def test_the_same_seed_is_the_same_story() -> None:
    def story() -> tuple[Any, ...]:
        async def play() -> tuple[Any, ...]:
            world = World(7)
            await world.play()
            return world.crashes, [hit for server in world.web.servers.values() for hit in server.hits]

        return run_virtually(play())

    assert story() == story()


@pytest.mark.parametrize(
    ("bug", "symptom"),
    [
        (TakesStale, "times"),
        (IgnoresSlots, "apart"),
        (AcknowledgesFailures, "missing"),
    ],
)
def test_a_planted_bug_is_found(bug: type[Broken], symptom: str) -> None:
    assert any(symptom in said for seed in range(100) for said in complaints(seed, bug)[:1])
