"""Hints: waiting for work, and what a person should know of the store."""

from __future__ import annotations

import asyncio
import time

from conformance.world import World


async def test_waiting_ends_in_time_when_nothing_happens(world: World) -> None:
    for seconds in (0.0, 0.05):
        began = time.monotonic()
        await world.queue.wait(seconds)
        assert time.monotonic() - began < seconds + 1.0


async def test_waiting_ends_in_time_when_there_is_work(world: World) -> None:
    other = await world.open()
    run = await world.run()
    waiting = asyncio.create_task(other.wait(5.0))
    await asyncio.sleep(0.05)
    await world.add(run, "a")
    async with asyncio.timeout(6.0):
        await waiting
    assert (await world.one()).url == "a"


async def test_a_wait_can_be_given_up(world: World) -> None:
    waiting = asyncio.create_task(world.queue.wait(60.0))
    await asyncio.sleep(0.05)
    waiting.cancel()
    async with asyncio.timeout(5.0):
        await asyncio.wait([waiting])
    assert waiting.cancelled()
    run = await world.run()
    await world.add(run, "a")
    assert (await world.one()).url == "a"


async def test_verbs_go_on_while_one_waits(world: World) -> None:
    run = await world.run()
    waiting = asyncio.create_task(world.queue.wait(0.2))
    await world.add(run, "a b")
    await world.settle_all(await world.claim())
    assert (await world.stats(run)).done == 2
    await waiting


async def test_a_checkup_explains_what_it_finds(world: World) -> None:
    findings = await world.queue.checkup()
    assert len({finding.what for finding in findings}) == len(findings)
    for finding in findings:
        assert finding.what and finding.words
        assert finding.fix or finding.level not in ("warning", "wrong"), finding
    assert not [finding for finding in findings if finding.level == "wrong"]
