"""What is remembered to be repeated after a fail-over: little, not for long, and nothing that would count twice."""

from __future__ import annotations

from conformance.harness import pages

from shoal.core.task import Outcome
from shoal.queue.failover import MAX_TASKS, FailoverNote, read_notes
from shoal.queue.recent_writes import MAX_AGE, MAX_BYTES, SECONDS, RecentAdd, RecentSettle, RecentWrites
from shoal.queue.values import Document


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def outcomes(*results: str, records: tuple[bytes, ...] = ()) -> list[Outcome]:
    return [Outcome(number, 7, result, records=records) for number, result in enumerate(results)]  # type: ignore[arg-type]


def test_only_what_was_accepted_and_does_not_come_back_by_itself_is_kept() -> None:
    writes = RecentWrites()
    some = outcomes("done", "dead", "cancelled", "retry", "released", "done")
    writes.settled(["ok", "already", "ok", "ok", "ok", "stale"], some)
    tasks = pages(3)
    writes.added(["added", "known", "rejected"], 5, tasks)
    settle, add = writes.take()
    assert isinstance(settle, RecentSettle) and [one.result for one in settle.outcomes] == ["done", "dead", "cancelled"]
    assert isinstance(add, RecentAdd) and (add.run, add.tasks) == (5, (tasks[0],))


def test_a_part_is_repeated_without_what_would_count_again() -> None:
    writes = RecentWrites()
    part = Outcome(1, 7, "part", found=tuple(pages(2)), skipped=(("scope", "x"),), counters={"n": 1})
    writes.settled(["ok"], [part])
    (kept,) = writes.take()
    assert isinstance(kept, RecentSettle)
    assert kept.outcomes == (Outcome(1, 7, "part", found=part.found),)


def test_it_is_bounded_by_time_and_by_size() -> None:
    clock = Clock()
    writes = RecentWrites(clock)
    writes.settled(["ok"], outcomes("done"))
    clock.now = SECONDS + 1
    assert len(writes.take()) == 1  # nothing was acknowledged since: a fail-over takes a while to begin
    clock.now = MAX_AGE + 1
    assert writes.take() == []
    writes.settled(["ok"], outcomes("done"))
    assert len(writes._writes) == 1
    large = outcomes("done", records=(b"x" * (MAX_BYTES // 4),))
    for _ in range(10):
        writes.settled(["ok"], large)
    assert len(writes.take()) == 3
    writes.settled(["ok"], outcomes("done", records=(b"x" * MAX_BYTES,)))
    assert writes.take() == []


def test_notes_of_several_processes_are_summed_and_bounded() -> None:
    one = FailoverNote(5, "a", "b", processes=1, repeated=3, missing=2, again=1, window_ms=7, tasks=tuple(range(15)))
    both = one.plus(FailoverNote(4, "a", "b", processes=1, repeated=1, window_ms=9, tasks=tuple(range(15))))
    assert (both.at, both.processes, both.repeated, both.missing, both.window_ms) == (4, 2, 4, 2, 9)
    assert len(both.tasks) == MAX_TASKS


def test_notes_that_somebody_else_wrote_are_nothing() -> None:
    assert read_notes(None) == []
    for text in ("", "[1]", '[{"at": "x"}]', '{"at": 1}'):
        assert read_notes(Document("failover", "log", 1, text, 0)) == []
