"""A pace that varies: between two requests it is the spacing, more or less by the jitter."""

from __future__ import annotations

from itertools import pairwise

import pytest

from shoal.worker.task import slot


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was slept, with dice that show the longer end and the shorter one by turns."""
    slept: list[float] = []
    ends = iter([1, 0] * 50)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(slot.asyncio, "sleep", sleep)
    monkeypatch.setattr(slot.random, "uniform", lambda low, high: (low, high)[next(ends)])
    return slept


async def test_from_one_request_to_the_next_it_is_between_both_ends(waits: list[float]) -> None:
    spacing, jitter = 2.0, 1.0
    for _ in range(4):
        await slot.wait_for_jitter(jitter, spacing, spacing)
    sent = [number * spacing + wait for number, wait in enumerate(waits)]
    gaps = [later - earlier for earlier, later in pairwise(sent)]
    assert gaps == [1.0, 3.0, 1.0]


@pytest.mark.parametrize(
    ("jitter", "spacing", "asked", "longest"),
    [
        (1.0, 10.0, 2.0, []),  # a crawl-delay, or another run's pace: nothing is taken away from it
        (1.0, 0.0, 0.0, []),  # no pace at all
        (5.0, 2.0, 2.0, [2.0]),  # never two at once
        (1.0, 2.0001, 2.0, [1.0]),  # the queue rounds
    ],
)
async def test_only_the_pace_that_the_run_asks_for_varies(
    waits: list[float], jitter: float, spacing: float, asked: float, longest: list[float]
) -> None:
    await slot.wait_for_jitter(jitter, spacing, asked)
    assert waits == longest
