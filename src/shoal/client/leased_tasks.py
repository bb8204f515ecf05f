"""Leased tasks: typed tasks taken from the queue one by one, for programs with a loop of their own."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Any, Literal

from shoal.core.retry import retry_delay
from shoal.core.task import GARBLED, Attempt, LeasedTask, Outcome, Result
from shoal.core.typed_task import TYPE_PREFIX, backoff_of, payload_of, retries_of
from shoal.errors import GiveUp, Retry
from shoal.queue.base import Queue
from shoal.queue.reconnect import settle_one
from shoal.store.results.base import encode_result

MAX_MESSAGE = 500
TOLERANCE = 0.04  # of the spacing of a lane, by which a slot may be missed
MAX_TRIES = 5


class DequeuedTask:
    """A task under a lease, which ends `lease` seconds after it was taken or last extended."""

    def __init__(self, task: LeasedTask, worker: str, queue: Queue, asked: float) -> None:
        meta = task.meta or {}
        self.id = task.id
        self.type = task.kind
        self.key = task.url.removeprefix(f"{TYPE_PREFIX}{task.kind}/")
        self.payload = payload_of(meta)
        self.priority = task.priority
        self.attempt = task.attempts + task.lost + 1
        self.worker = worker
        self.leased = task
        self.retries = retries_of(meta)
        self.retry_backoff = backoff_of(meta)
        self._queue = queue
        self._leased_at = time.monotonic()
        self._slot = asked, self._leased_at + task.start_in

    @property
    def start_in(self) -> float:
        """Seconds until the rate limit of its lane lets it start."""
        return max(0.0, self._slot[1] - time.monotonic())

    async def wait_for_turn(self) -> None:
        """Wait until its lane lets it start; a missed slot is exchanged for another, so none are bunched."""
        late = self.leased.spacing * TOLERANCE
        if not late:
            return
        asked, starts_at = self._slot
        trip = self._leased_at - asked
        for _ in range(MAX_TRIES):
            await asyncio.sleep(starts_at - time.monotonic())
            if trip + time.monotonic() - starts_at <= late:
                return
            asked = time.monotonic()
            slot = await self._queue.reserve(self.leased.lane)
            trip = time.monotonic() - asked
            starts_at = asked + trip + slot.wait
        await asyncio.sleep(starts_at - time.monotonic())

    def outcome_done(self, result: Any) -> Outcome:
        return Outcome(
            task=self.id,
            lease=self.leased.lease,
            result="done",
            attempt=self._attempt("", ""),
            records=() if result is None else (encode_result(result),),
        )

    def outcome_failed(
        self, error: BaseException | str, limits: Mapping[str, int] | None = None, base: float | None = None
    ) -> Outcome:
        """The outcome that the retry policy decides for an error; the task's own `retries` come first."""
        cause, message = _cause_of(error), str(error)[:MAX_MESSAGE]
        after: float | None = None
        if not isinstance(error, GiveUp) and self.leased.ack == "manual":
            after = retry_delay(
                cause,
                self.leased.failures or {},
                jitter=random.random(),
                after=error.after if isinstance(error, Retry) else None,
                limits=limits if self.retries is None else {"*": self.retries},
                base=base if self.retry_backoff is None else self.retry_backoff,
            )
        dead = after is None
        return Outcome(
            task=self.id,
            lease=self.leased.lease,
            result="dead" if dead else "retry",
            attempt=self._attempt(cause, message),
            after=after or 0.0,
            cause=cause,
            evidence={"url": self.leased.url, "why": message} if dead else None,
        )

    def outcome_released(self) -> Outcome:
        return Outcome(task=self.id, lease=self.leased.lease, result="released")

    def _attempt(self, cause: str, message: str) -> Attempt:
        return Attempt(
            at=time.time_ns() // 1000,
            worker=self.worker,
            cause=cause,
            message=message,
            seconds=round(time.monotonic() - self._leased_at, 6),
        )

    def __repr__(self) -> str:
        return f"<task {self.id}: {self.type}, attempt {self.attempt}, held by {self.worker}>"


def garbled_outcome(task: LeasedTask, worker: str) -> Outcome:
    """A dead letter of a task that nobody can read: there is nothing of it to hand out."""
    return Outcome(
        task=task.id,
        lease=task.lease,
        result="dead",
        attempt=Attempt(time.time_ns() // 1000, worker, GARBLED, task.garbled[:MAX_MESSAGE]),
        cause=GARBLED,
        evidence={"url": task.url, "why": task.garbled[:MAX_MESSAGE]},
    )


def _cause_of(error: BaseException | str) -> str:
    if isinstance(error, Retry | GiveUp):
        return error.cause
    return "handler" if isinstance(error, str) else f"handler.{type(error).__name__}"


async def settle(queue: Queue, outcome: Outcome) -> Result | Literal["lost"]:
    """Settle one outcome; "lost" means that the lease had ended and the task is another worker's now."""
    return "lost" if await settle_one(queue, outcome) == "stale" else outcome.result
