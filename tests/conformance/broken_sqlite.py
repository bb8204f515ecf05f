"""The same proof on a real engine: SQLite queues that break one rule by a small step of SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from fake_clock import FakeClock
from msgspec.structs import replace

from conformance.harness import Opener
from shoal.core.lane import Pace
from shoal.core.run import Run, run_of
from shoal.core.run_counters import add_bounded
from shoal.core.task import Claim, LaneChange, Outcome, Verdict
from shoal.queue.base import Queue, ReapResult, RunAction
from shoal.queue.counter_totals import counter_totals
from shoal.queue.sqlite import SqliteQueue


class TamperedSqliteQueue(SqliteQueue):
    async def tamper(self, sql: str, *values: object) -> list[tuple]:
        def step(db: sqlite3.Connection, now: int) -> list[tuple]:
            return db.execute(sql, values).fetchall()

        return await self._engine.write(step)


class NoFencing(TamperedSqliteQueue):
    """Every answer is taken as if it came under the present lease."""

    async def settle(self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None) -> list[Verdict]:
        unfenced = []
        for outcome in outcomes:
            held = await self.tamper("SELECT lease FROM tasks WHERE id = ? AND state = 1", outcome.task)
            lease = held[0][0] if held else outcome.lease
            unfenced.append(replace(outcome, lease=lease))
        return await super().settle(unfenced, paces)


class LeaseIsTheClock(TamperedSqliteQueue):
    """The last lease number is not kept."""

    async def claim(self, *args: object, **words: object) -> Claim:
        await self.tamper("UPDATE meta SET value = 0 WHERE key = 'last_lease'")
        return await super().claim(*args, **words)  # type: ignore[arg-type]


class InFlightLeaked(TamperedSqliteQueue):
    """What is reaped keeps its places in flight."""

    async def reap(self, dead_workers: Mapping[str, Collection[int]] | None = None) -> ReapResult:
        reaped = await super().reap(dead_workers)
        await self.tamper("UPDATE lanes SET in_flight = in_flight + ? WHERE id = 1", reaped.returned)
        return reaped


class CountersOutOfStep(TamperedSqliteQueue):
    """Acknowledging and counting are two things, and one is forgotten for dead letters."""

    async def settle(self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None) -> list[Verdict]:
        verdicts = await super().settle(outcomes, paces)
        for outcome, verdict in zip(outcomes, verdicts, strict=True):
            if outcome.result == "dead" and verdict == "ok":
                await self.tamper("UPDATE runs SET dead = dead - 1 WHERE id = ?", run_of(outcome.task))
        return verdicts


class SpacingIgnored(TamperedSqliteQueue):
    """Lanes are never moved on."""

    async def claim(self, *args: object, **words: object) -> Claim:
        await self.tamper("UPDATE lanes SET next_at = 0")
        await self.tamper("UPDATE run_lanes SET wake_at = 0 WHERE wake_at IS NOT NULL")
        return await super().claim(*args, **words)  # type: ignore[arg-type]


class TrimmedUncounted(TamperedSqliteQueue):
    """Records are removed and counted in two steps, and the second is forgotten."""

    async def trim(self, run: int, upto: int) -> int:
        gone = await super().trim(run, upto)
        await self.tamper("UPDATE runs SET trimmed = trimmed - ? WHERE id = ?", gone, run)
        return gone


class DroppedStillReady(TamperedSqliteQueue):
    """Lanes are not told that what waited there was dropped."""

    async def drop(self, run: int, *args: Any, **how: Any) -> int:
        before = await self.tamper("SELECT ready, wake_at, run, lane, needs FROM run_lanes WHERE run = ?", run)
        count = await super().drop(run, *args, **how)
        for run_lane in before:
            await self.tamper(
                "UPDATE run_lanes SET ready = ?, wake_at = ? WHERE run = ? AND lane = ? AND needs = ?", *run_lane
            )
        return count


class DroppedUncounted(TamperedSqliteQueue):
    """What was dropped is counted as if it still waited."""

    async def drop(self, run: int, *args: Any, **how: Any) -> int:
        ((before,),) = await self.tamper("SELECT ready FROM runs WHERE id = ?", run)
        count = await super().drop(run, *args, **how)
        await self.tamper("UPDATE runs SET ready = ? WHERE id = ?", before, run)
        return count


class RuleForgotten(TamperedSqliteQueue):
    """What is learned later replaces what a person set."""

    async def set_lane(self, change: LaneChange) -> None:
        await super().set_lane(change)
        if change.spacing_override is None:
            await self.tamper("UPDATE lanes SET spacing = max(requested, learned) WHERE name = ?", change.lane)


class NeedyUncounted(TamperedSqliteQueue):
    """What waits with needs is counted when it comes, and not when it goes."""

    async def claim(self, *args: object, **words: object) -> Claim:
        before = await self.tamper("SELECT ready, run, needs FROM run_needs")
        claim = await super().claim(*args, **words)  # type: ignore[arg-type]
        for row in before:
            await self.tamper("UPDATE run_needs SET ready = ? WHERE run = ? AND needs = ?", *row)
        return claim


class SeenSetsMixed(TamperedSqliteQueue):
    """What was cleared is found again: a new set has the number of the old one."""

    async def clear_seen(self, name: str) -> int:
        before = await self.tamper("SELECT count(*) FROM seen_entries")
        await self.tamper("UPDATE seen_sets SET entries = 0 WHERE name = ?", name)
        return int(before[0][0])


class UndoUncounted(TamperedSqliteQueue):
    """Tasks come back with their run, and the account says that they were cancelled."""

    async def set_run(self, run: int, action: RunAction) -> Run:
        before = await self.tamper("SELECT cancelled FROM runs WHERE id = ?", run)
        changed = await super().set_run(run, action)
        if action == "undo" and before:
            await self.tamper("UPDATE runs SET cancelled = ? WHERE id = ?", before[0][0], run)
        return changed


class KeptLeftInLanes(TamperedSqliteQueue):
    """Lanes are not told that what waited there is back."""

    async def set_run(self, run: int, action: RunAction) -> Run:
        changed = await super().set_run(run, action)
        if action == "undo":
            await self.tamper("UPDATE run_lanes SET ready = 0, wake_at = NULL WHERE run = ?", run)
        return changed


class CountersTakenUnseen(TamperedSqliteQueue):
    """What a batch counts is added whatever became of it."""

    async def settle(self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None) -> list[Verdict]:
        verdicts = await super().settle(outcomes, paces)
        late = [outcome for outcome, verdict in zip(outcomes, verdicts, strict=True) if verdict != "ok"]
        for run, total in counter_totals(late).items():
            counts = await self.run_counters(run)
            add_bounded(counts, total, 200)
            text = msgspec.json.encode(counts).decode()
            await self.tamper("INSERT OR REPLACE INTO run_counters VALUES (?, ?)", run, text)
        return verdicts


class AcknowledgedUncounted(TamperedSqliteQueue):
    """Entries of the outbox are removed and counted in two steps, and the second is forgotten."""

    async def acknowledge(self, seqs: Collection[int]) -> int:
        before = await self.tamper("SELECT outbox, id FROM runs")
        gone = await super().acknowledge(seqs)
        for counted in before:
            await self.tamper("UPDATE runs SET outbox = ? WHERE id = ?", *counted)
        return gone


def opener(kind: type[TamperedSqliteQueue]) -> Opener:
    async def open_broken(folder: Path, clock: FakeClock) -> Queue:
        return await kind.open(str(folder / "queue.db"), clock=clock)

    return open_broken
