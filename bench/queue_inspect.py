"""Inspecting a big queue: every query of the server, timed over a run of a million tasks.

Any queue will do (--queue URL); without one a file is made and thrown away. A queue that has the run from
an earlier call is asked again, not filled again. Exit code 1 if a question takes longer than it may.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness

from shoal.app import open_queue
from shoal.config.load import Settings
from shoal.core.lane import UNLIMITED_PACE, WorkerStatus
from shoal.core.run import TASK_BITS, NewRun, Run
from shoal.core.task import Attempt, ExportedTask, LaneChange, Outcome, Task, digest
from shoal.queue.base import Queue, TaskFilter

BATCH = 5_000
OTHERS = 50
WORKERS = 500
WINDOW = 20_000
CAUSES = ("http.500", "http.404", "timeout.total", "dns", "http.429")
FIGURES = b"x" * 1500  # about as much as a busy worker says


@dataclass(frozen=True)
class Size:
    tasks: int
    lanes: int
    runs: int = OTHERS  # beside the large one

    def state(self, number: int) -> Any:
        """Three tenths ready, two dead, the rest done; the first and the last of each lie far apart."""
        place = number / self.tasks
        return "done" if place <= 0.5 else "dead" if place <= 0.7 else "ready"

    def lane(self, number: int) -> str:
        return f"h{number % self.lanes}.example"

    def url(self, number: int) -> str:
        return f"http://{self.lane(number)}/part/{number % 97}/page-{number}.html"

    def carried(self, number: int) -> ExportedTask:
        url, state = self.url(number), self.state(number)
        task = Task(url=url, lane=self.lane(number), digest=digest(url), depth=2, parent=None)
        if state == "ready":
            return ExportedTask(number, task, "ready", added_at=1)
        if state == "done":
            return ExportedTask(number, task, "done", attempts=1, added_at=1, finished_at=number)
        cause = CAUSES[number % 5]
        past = tuple(Attempt(n, "w", cause, f"the server said {cause}", 500, 0.2, 1000) for n in range(3))
        return ExportedTask(
            number, task, "dead", attempts=3, added_at=1, finished_at=number, cause=cause, history=past,
            evidence={"head": "x" * 200},
        )  # fmt: skip


async def fill(queue: Queue, size: Size) -> Run:
    run = await queue.start_run(NewRun(scraper="looking", key="looking", name="looking"))
    if (await queue.stats(run.id)).seen >= size.tasks:
        return run
    await queue.set_run(run.id, "pause")
    paces = {f"h{n}.example": UNLIMITED_PACE for n in range(size.lanes)}
    began = time.monotonic()
    for first in range(1, size.tasks + 1, BATCH):
        numbers = range(first, min(first + BATCH, size.tasks + 1))
        await queue.import_run(run.id, [size.carried(n) for n in numbers], paces=paces)
        paces = {} if first > size.lanes else paces
        if first % 100_000 == 1:
            print(f"  {first - 1:,} after {time.monotonic() - began:.0f} s", flush=True)
    await queue.set_run(run.id, "resume")
    await populate(queue, run, size)
    return run


async def populate(queue: Queue, run: Run, size: Size) -> None:
    """Around the big run: small ones, workers that hold something, lanes in every condition."""
    each = max(5, 200 * OTHERS // size.runs)
    for n in range(size.runs):
        other = await queue.start_run(NewRun(scraper=f"s{n % 7}", key=f"other {n}", name=f"other-{n}"))
        tasks = [Task(url=f"u{n}/{k}", lane=size.lane(k), digest=digest(f"u{n}/{k}")) for k in range(each)]
        await queue.add(other.id, tasks, {task.lane: UNLIMITED_PACE for task in tasks})
    for n in range(WORKERS):
        await queue.register(WorkerStatus(f"w{n}", f"worker {n}", "host", n, "1", 1 + n, 0, counters=FIGURES))
    for n in range(0, WORKERS, 2):
        claim = await queue.claim(f"w{n}", 8, lease=86_400.0, serves=["looking"])
        ends: list[Any] = ["cancelled", "retry", "retry"]  # the others stay leased
        outcomes = [
            Outcome(task.id, task.lease, result, after=86_400.0, cause="refused")
            for task, result in zip(claim.tasks, ends, strict=False)
        ]
        await queue.settle(outcomes)
    for n in range(0, size.lanes, 100):
        await queue.set_lane(LaneChange(size.lane(n), park_for=86_400.0, reason="blocked"))
        await queue.set_lane(LaneChange(size.lane(n + 1), spacing_override=0.0))
        await queue.set_lane(LaneChange(size.lane(n + 2), hold_for=86_400.0))


@dataclass(frozen=True)
class Question:
    words: str
    ask: Callable[[], Awaitable[Any]]
    most: float  # seconds


def questions(queue: Queue, run: Run, size: Size, others: list[int]) -> Iterator[Question]:
    base, half = run.id << TASK_BITS, size.tasks // 2
    quick = 0.020
    yield Question("stats", lambda: queue.stats(run.id), quick)
    count = min(size.runs, len(others))
    many = 0.1 if count > 500 else quick
    yield Question(f"stats_of {count:,} runs", lambda: queue.stats_of([run.id, *others[1:count]]), many)
    for state in ("ready", "delayed", "leased", "done", "dead", "cancelled", None):
        yield Question(
            f"look, state {state or 'any'}", lambda state=state: queue.list_tasks(run.id, state=state, limit=100), quick
        )
    dead = base + int(size.tasks * 0.6)
    yield Question(
        "look, dead, from the middle", lambda: queue.list_tasks(run.id, state="dead", after=dead, limit=100), quick
    )
    group = TaskFilter(lane=size.lane(half + 1), cause=CAUSES[(half + 1) % 5])
    yield Question("look, dead of a group", lambda: queue.list_tasks(run.id, state="dead", where=group), quick)
    lane = TaskFilter(lane=size.lane(7))
    yield Question("look, ready of a lane", lambda: queue.list_tasks(run.id, state="ready", where=lane), quick)
    for words, after in (("done", 0), ("done to dead", half - 10_000), ("ready", int(size.tasks * 0.8))):
        yield Question(
            f"look for a URL over {WINDOW:,} ({words})",
            lambda after=after: queue.list_tasks(
                run.id, where=TaskFilter(url="*no-such-page*"), after=base + after, upto=base + after + WINDOW
            ),
            0.060,
        )
    chosen = TaskFilter(ids=tuple(base + n for n in range(1, size.tasks, size.tasks // 100)))
    yield Question("look, 100 by number", lambda: queue.list_tasks(run.id, where=chosen), quick)
    yield Question("find", lambda: queue.find(run.id, digest(size.url(half))), quick)
    yield Question("ids of 1,000", lambda: queue.ids(run.id, [digest(size.url(n)) for n in range(1, 1001)]), quick)
    yield Question("dead_groups", lambda: queue.dead_groups(run.id, limit=100), 0.100)
    yield Question("skipped", lambda: queue.skipped(run.id), quick)
    yield Question("lanes", lambda: queue.lanes(limit=100), quick)
    yield Question("lanes by name", lambda: queue.lanes(order="name", after="h5", limit=100), quick)
    yield Question("lanes like", lambda: queue.lanes(like="99.ex", limit=100), quick)
    yield Question("lanes like, by name", lambda: queue.lanes(like="99.ex", order="name"), quick)
    for only in ("parked", "held", "overridden"):
        yield Question(f"lanes, {only}", lambda only=only: queue.lanes(only=only, limit=100), quick)
    yield Question("lanes of a run", lambda: queue.lanes(run=run.id, limit=100), quick)
    yield Question("lanes of a run, by name", lambda: queue.lanes(run=run.id, order="name"), quick)
    yield Question("lanes by 50 names", lambda: queue.lanes(names=[size.lane(n) for n in range(50)]), quick)
    yield Question("runs", lambda: queue.runs(limit=100), quick)
    yield Question("runs of a scraper", lambda: queue.runs(scraper="s3", before=others[3]), quick)
    yield Question(f"workers, {WORKERS}", lambda: queue.workers(), quick)


async def ask(question: Question, times: int) -> tuple[float, list[float]]:
    """The first answer's seconds, and those of the others."""
    spent = []
    for _ in range(1 + times):
        began = time.perf_counter()
        await question.ask()
        spent.append(time.perf_counter() - began)
    return spent[0], spent[1:]


async def everything(args: argparse.Namespace, url: str) -> int:
    size = Size(args.tasks, args.lanes, args.runs)
    queue = await open_queue(Settings(queue=url), small=args.small)
    try:
        run = await fill(queue, size)
        others = [other.id for other in await queue.runs(limit=args.runs + 1)]
        stats = await queue.stats(run.id)
        rows, slow = [], 0
        for question in questions(queue, run, size, others):
            first, later = await ask(question, args.times)
            middle, top = harness.quantile(later, 0.5), max(later)
            late = middle > question.most
            slow += late
            figures = [f"{seconds * 1000:.1f}" for seconds in (first, middle, top)]
            rows.append([question.words, *figures, f"{question.most * 1000:.0f}", "slow" if late else ""])
    finally:
        await queue.close()
    scheme = url.partition(":")[0]
    counts = f"{stats.ready:,} ready, {stats.dead:,} dead, {stats.done:,} done"
    text = f"{scheme}: {stats.seen:,} tasks ({counts}), {size.lanes:,} lanes; ms.\n\n"
    text += harness.table(["question", "first", "p50", "max", "at most", ""], rows)
    print(text)
    harness.save(f"looking_{scheme}", {"machine": harness.machine(), "arguments": vars(args), "rows": rows}, text)
    return 1 if slow else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queue", default="", help="an empty queue, or one filled by an earlier call")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--lanes", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=OTHERS, help="small ones beside the large one")
    parser.add_argument("--times", type=int, default=20, help="each question is asked after the first time")
    parser.add_argument("--small", action="store_true", help="open it as a process that should stay small")
    args = parser.parse_args()
    if args.queue:
        return asyncio.run(everything(args, args.queue))
    with harness.scratch() as folder:
        return asyncio.run(everything(args, f"sqlite:///{Path(folder) / 'looking.db'}"))


if __name__ == "__main__":
    sys.exit(main())
