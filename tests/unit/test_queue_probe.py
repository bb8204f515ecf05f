"""The server's probe of its queue: silence counts, a server that was held up itself does not."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from shoal.errors import QueueUnavailable
from shoal.web import queue_probe
from shoal.web.queue_probe import QueueProbe


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
async def test_a_queue_that_does_not_answer_is_down_until_it_does(refuses: bool) -> None:
    queue: Any = QuietQueue()
    probe = QueueProbe(queue)
    running = asyncio.create_task(probe.run())
    queue.refuses = refuses
    queue.answers.clear()
    await state_after(probe, True)
    queue.refuses = False
    queue.answers.set()
    await state_after(probe, False)
    assert probe.last_error == ""
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
