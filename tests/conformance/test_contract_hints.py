"""Hints: waiting for work, and what a person should know of the store."""

from __future__ import annotations

import asyncio

from wait import FOREVER, HANG

from conformance.harness import QueueHarness


async def test_waiting_ends_in_time_when_nothing_happens(harness: QueueHarness) -> None:
    for seconds in (0.0, 0.05):
        async with asyncio.timeout(HANG):
            await harness.queue.wait(seconds)


async def test_waiting_ends_in_time_when_there_is_work(harness: QueueHarness) -> None:
    other = await harness.open()
    run = await harness.run()
    waiting = asyncio.create_task(other.wait(5.0))
    await asyncio.sleep(0.05)
    await harness.add(run, "a")
    async with asyncio.timeout(HANG):
        await waiting
    assert (await harness.one()).url == "a"


async def test_a_wait_can_be_given_up(harness: QueueHarness) -> None:
    waiting = asyncio.create_task(harness.queue.wait(FOREVER))
    await asyncio.sleep(0.05)
    waiting.cancel()
    async with asyncio.timeout(HANG):
        await asyncio.wait([waiting])
    assert waiting.cancelled()
    run = await harness.run()
    await harness.add(run, "a")
    assert (await harness.one()).url == "a"


async def test_verbs_go_on_while_one_waits(harness: QueueHarness) -> None:
    run = await harness.run()
    waiting = asyncio.create_task(harness.queue.wait(0.2))
    await harness.add(run, "a b")
    await harness.settle_all(await harness.claim())
    assert (await harness.stats(run)).done == 2
    await waiting


async def test_a_checkup_explains_what_it_finds(harness: QueueHarness) -> None:
    findings = await harness.queue.diagnose()
    assert len({finding.what for finding in findings}) == len(findings)
    for finding in findings:
        assert finding.what and finding.words
        assert finding.fix or finding.level not in ("warning", "wrong"), finding
    assert not [finding for finding in findings if finding.level == "wrong"]
