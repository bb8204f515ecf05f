"""Adding a shard: how long it takes is a matter of how many hosts there are, and never too long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from conformance.harness import QueueHarness, open_sqlite, page
from conformance.shards_backend import open_shards
from simulation import run_virtually

from shoal.core.task import LaneChange
from shoal.queue.shards import ShardedQueue, lane_move

SetLane = Callable[[LaneChange], Awaitable[None]]


def slowly(set_lane: SetLane) -> SetLane:
    async def later(change: LaneChange) -> None:
        await asyncio.sleep(4.0)
        await set_lane(change)

    return later


def test_only_waiting_for_pages_in_progress_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_move, "REST_TIMEOUT", 10.0)  # more than it takes to hold one host, less than for all
    monkeypatch.setattr(lane_move, "AT_ONCE", 1)

    async def story() -> None:
        harness = QueueHarness(open_sqlite, tmp_path)
        queue = harness.queue = await open_shards(tmp_path, harness.clock, open_sqlite)
        assert isinstance(queue, ShardedQueue)
        run = await harness.run()
        await harness.add(run, [page(f"t{n}", f"h{n}.test") for n in range(120)])
        for shard in queue.shards.shards:
            assert shard.queue is not None
            monkeypatch.setattr(shard.queue, "set_lane", slowly(shard.queue.set_lane))
        report = await lane_move.add_shard(queue.shards, "test://shards/fourth")
        assert report.moved > 9  # at least four from one of the three
        assert (await harness.stats(run)).ready == 120
        await queue.close()

    run_virtually(story())
