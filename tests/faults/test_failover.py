"""A fleet of processes whose server is killed or falls silent in mid-run, and another one takes over."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from servers.postgres_pair import postgres_pair
from servers.redis_nodes import SentinelGroup, cluster, sentinel_group
from wait import until

from shoal.queue.document_kinds import FAILOVER
from shoal.queue.failover import LOG, read_notes
from shoal.queue.redis.cluster import slot_of

from .fleet import FaultFleet

TASKS = int(os.environ.get("SHOAL_FAILOVER_TASKS", "3000"))
RECOVERED = 30.0  # seconds until work goes on


@contextmanager
def silent_primary() -> Iterator[SentinelGroup]:
    """A machine that is gone does not close its connections."""
    with sentinel_group() as group:
        group.fail_over = group.primary.pause  # type: ignore[method-assign]
        try:
            yield group
        finally:
            group.primary.resume()


KINDS: dict[str, tuple[Callable[[], Any], dict[str, object]]] = {
    "sentinel": (sentinel_group, {}),
    "sentinel, silent": (silent_primary, {}),
    "sentinel, confirmed": (lambda: sentinel_group(replicas=2), {"replicas": 1}),
    "cluster": (lambda: cluster(slot_of("faults"), replicas=1), {}),
    "cluster, confirmed": (lambda: cluster(slot_of("faults"), replicas=2), {"replicas": 1}),
    "postgres": (postgres_pair, {}),
    "postgres, synchronous": (lambda: postgres_pair(synchronous=True), {}),
}


@pytest.fixture
async def fleet_on(tmp_path: Path) -> AsyncIterator[Callable[[str], Any]]:
    made: list[FaultFleet] = []

    async def make(url: str) -> FaultFleet:
        fleet = FaultFleet(tmp_path, url)
        made.append(fleet)
        await fleet.open(TASKS)
        fleet.start(2)
        return fleet

    yield make
    for fleet in made:
        await fleet.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fleet_goes_on_within_half_a_minute_and_loses_nothing(
    kind: str, fleet_on: Callable[[str], Any]
) -> None:
    make, words = KINDS[kind]
    with make() as servers:
        fleet = await fleet_on(servers.url("faults", **words))
        await fleet.wait_done(TASKS // 3, 300)
        before = time.monotonic()
        await asyncio.to_thread(servers.fail_over)
        done = (await fleet.stats()).done
        await fleet.wait_done(done + 50, 300)
        recovered = time.monotonic() - before
        await fleet.wait_done(TASKS, 300)
        result = await fleet.check()
        assert fleet.queue is not None
        document = await until(lambda: fleet.queue.document(FAILOVER, LOG))
        note = read_notes(document)[-1]
        print(f"\n{kind}: recovered in {recovered:.1f} s; {note}\n{result.summary()}")
        # Workers may have to give up their leases while there is no server: more may run again than was killed.
        assert not [words for words in result.violations if "extra executions" not in words], result.violations
        assert recovered < RECOVERED
        if words or "synchronous" in kind:
            assert (note.missing, note.again, note.failed) == (0, 0, 0)
