"""The server's probe of its queue: silence counts, a server that was held up itself does not."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from shoal.control import queue_probe
from shoal.control.queue_probe import QueueProbe
from shoal.errors import QueueUnavailable


class QuietQueue:
    """Answers while it may; refuses or keeps silent otherwise."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.refuses = False
        self.asked = 0

    async def now(self) -> int:
        self.asked += 1
        if self.refuses:
            raise QueueUnavailable("away")
        await self.answers.wait()
        return 0


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"INTERVAL": 0.01, "TICK": 0.01, "DOWN_AFTER": 0.1}.items():
        monkeypatch.setattr(queue_probe, name, seconds)


async def state_after(probe: QueueProbe, is_down: bool) -> None:
    async with asyncio.timeout(30):
        while probe.is_down is not is_down:
            await asyncio.sleep(0.005)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("refuses", [True, False])
async def test_a_queue_that_does_not_answer_is_down_until_it_does_and_both_are_logged_once(
    refuses: bool, caplog: pytest.LogCaptureFixture
) -> None:
    queue: Any = QuietQueue()
    probe = QueueProbe(queue)
    running = asyncio.create_task(probe.run())
    queue.refuses = refuses
    queue.answers.clear()
    await state_after(probe, True)
    queue.refuses = False
    queue.answers.set()
    await state_after(probe, False)
    assert probe.last_error == "" and not probe.away.is_set()
    assert [record.message for record in caplog.records] == ["queue_down", "queue_back"]
    running.cancel()


async def test_the_return_is_logged_also_after_a_short_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queue_probe, "INTERVAL", 0.01)
    queue: Any = QuietQueue()
    queue.refuses = True
    probe = QueueProbe(queue)
    running = asyncio.create_task(probe.run())
    await asyncio.wait_for(probe.away.wait(), 30)
    assert not probe.is_down
    queue.refuses = False
    async with asyncio.timeout(30):
        while probe.away.is_set():
            await asyncio.sleep(0.005)
    assert [record.message for record in caplog.records] == ["queue_down", "queue_back"]
    running.cancel()


@pytest.mark.usefixtures("hurried")
async def test_a_loop_that_was_held_up_does_not_blame_the_queue() -> None:
    queue: Any = QuietQueue()
    probe = QueueProbe(queue)
    running = asyncio.create_task(probe.run())
    while queue.asked < 2:
        await asyncio.sleep(0.005)
    time.sleep(0.3)  # longer than it takes for a silent queue to be down
    assert not probe.is_down
    await asyncio.sleep(0)
    assert not probe.is_down
    running.cancel()
