"""The same proof on a real engine: SQLite queues that break one rule by a small step of SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from conformance.world import Clock, Opener
from shoal.core.lane import Pace
from shoal.core.run import run_of
from shoal.core.task import Claim, LaneChange, Outcome, Verdict
from shoal.queue.base import Queue, Reaped
from shoal.queue.sqlite import SqliteQueue


class Meddled(SqliteQueue):
    async def meddle(self, sql: str, *values: object) -> list[tuple]:
        def step(db: sqlite3.Connection, now: int) -> list[tuple]:
            return db.execute(sql, values).fetchall()

        return await self._engine.write(step)


class NoFencing(Meddled):
    """Every answer is taken as if it came under the present lease."""

    async def settle(
        self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None
    ) -> list[Verdict]:
        unfenced = []
        for outcome in outcomes:
            held = await self.meddle("SELECT lease FROM tasks WHERE id = ? AND state = 1", outcome.task)
            lease = held[0][0] if held else outcome.lease
            unfenced.append(replace(outcome, lease=lease))
        return await super().settle(unfenced, paces)


class LeaseIsTheClock(Meddled):
    """The last lease number is not kept."""

    async def claim(self, *args: object, **words: object) -> Claim:
        await self.meddle("UPDATE meta SET value = 0 WHERE key = 'last_lease'")
        return await super().claim(*args, **words)  # type: ignore[arg-type]


class InFlightLeaked(Meddled):
    """What is reaped keeps its places in flight."""

    async def reap(self, dead_workers: Mapping[str, Collection[int]] | None = None) -> Reaped:
        reaped = await super().reap(dead_workers)
        await self.meddle("UPDATE lanes SET in_flight = in_flight + ? WHERE id = 1", reaped.returned)
        return reaped


class CountersOutOfStep(Meddled):
    """Acknowledging and counting are two things, and one is forgotten for dead letters."""

    async def settle(
        self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None
    ) -> list[Verdict]:
        verdicts = await super().settle(outcomes, paces)
        for outcome, verdict in zip(outcomes, verdicts, strict=True):
            if outcome.result == "dead" and verdict == "ok":
                await self.meddle("UPDATE runs SET dead = dead - 1 WHERE id = ?", run_of(outcome.task))
        return verdicts


class SpacingIgnored(Meddled):
    """Lanes are never moved on."""

    async def claim(self, *args: object, **words: object) -> Claim:
        await self.meddle("UPDATE lanes SET next_at = 0")
        await self.meddle("UPDATE heads SET wake_at = 0 WHERE wake_at IS NOT NULL")
        return await super().claim(*args, **words)  # type: ignore[arg-type]


class TrimmedUncounted(Meddled):
    """Records are removed and counted in two steps, and the second is forgotten."""

    async def trim(self, run: int, upto: int) -> int:
        gone = await super().trim(run, upto)
        await self.meddle("UPDATE runs SET trimmed = trimmed - ? WHERE id = ?", gone, run)
        return gone


class DroppedStillReady(Meddled):
    """Lanes are not told that what waited there was dropped."""

    async def drop(self, run: int, *args: Any, **how: Any) -> int:
        before = await self.meddle("SELECT ready, wake_at, run, lane FROM heads WHERE run = ?", run)
        count = await super().drop(run, *args, **how)
        for head in before:
            await self.meddle("UPDATE heads SET ready = ?, wake_at = ? WHERE run = ? AND lane = ?", *head)
        return count


class DroppedUncounted(Meddled):
    """What was dropped is counted as if it still waited."""

    async def drop(self, run: int, *args: Any, **how: Any) -> int:
        ((before,),) = await self.meddle("SELECT ready FROM runs WHERE id = ?", run)
        count = await super().drop(run, *args, **how)
        await self.meddle("UPDATE runs SET ready = ? WHERE id = ?", before, run)
        return count


class RuleForgotten(Meddled):
    """What is learned later replaces what a person set."""

    async def set_lane(self, change: LaneChange) -> None:
        await super().set_lane(change)
        if change.rule is None:
            await self.meddle("UPDATE lanes SET spacing = max(asked, learned) WHERE name = ?", change.lane)


def opener(kind: type[Meddled]) -> Opener:
    async def open_broken(folder: Path, clock: Clock) -> Queue:
        return await kind.open(str(folder / "queue.db"), clock=clock)

    return open_broken
