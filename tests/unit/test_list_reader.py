"""Lists on their way into a run: every line once, whatever is killed and whenever."""

from __future__ import annotations

import asyncio
import csv
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from wait import HANG

from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.run import NewRun, Run
from shoal.core.task import Admission, Outcome, Task
from shoal.core.url import UrlNormalizer, request_digest
from shoal.errors import QueueUnavailable, UsageError
from shoal.queue.base import Queue
from shoal.runs import list_reader as module
from shoal.runs.list_reader import BATCH, DUPLICATE_REASON, ListReader, load_report, refuse_changed_list
from shoal.runs.list_report import FAILING_REASON, ListReport, describe_rejected, describe_report
from shoal.sources.arguments import ArgumentSource
from shoal.sources.base import UrlEntry
from shoal.sources.open import open_source
from shoal.store.sidecars import RejectedFile

CHILD = """
import asyncio, resource, sys
from pathlib import Path
from shoal.runs.list_reader import ListReader
from shoal.core.lane import Pace
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.open import open_source
from shoal.store.sidecars import RejectedFile

async def main():
    folder = Path(sys.argv[1])
    queue = await SqliteQueue.open(str(folder / "q.db"), synchronous="normal")
    (run,) = await queue.runs(name="7KQ2X", limit=1)
    aside = lambda size: RejectedFile(folder / "out.rejected.csv", size)
    print("ready", flush=True)
    source = open_source(folder / "urls.txt")
    await ListReader(queue, run, source, folder, pace=lambda _: Pace(), rejects=aside).run()
    await queue.close()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

asyncio.run(main())
"""


@pytest.fixture
async def run(queue: Queue) -> Run:
    return await queue.start_run(NewRun("list", "key", "7KQ2X"))


def listed(folder: Path, *lines: str, name: str = "urls.txt") -> Path:
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder / name


def list_reader(queue: Any, run: Run, path: Path, **more: Any) -> ListReader:
    return ListReader(
        queue,
        run,
        open_source(path),
        path.parent,
        pace=lambda lane: Pace(0.5, 1),
        rejects=lambda size: RejectedFile(path.parent / "out.rejected.csv", size),
        **more,
    )


def rejected(folder: Path) -> list[tuple[int, str, str]]:
    with (folder / "out.rejected.csv").open(newline="") as file:
        return [(int(row["line"]), row["input"], row["reason"]) for row in csv.DictReader(file)]


async def urls(queue: Queue, run: Run) -> list[str]:
    found: list[Any] = []
    while slice_ := await queue.list_tasks(run.id, after=found[-1].id if found else 0, limit=1000):
        found += slice_
    return [view.url for view in found]


class Broken:
    """A queue whose connection breaks before or after one of the calls of add; all else is real."""

    def __init__(self, queue: Queue, at: int, *, after: bool) -> None:
        self._queue = queue
        self._left = at
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def add(self, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None) -> list[Admission]:
        self._left -= 1
        if not self._left and not self._after:
            raise QueueUnavailable("gone")
        answers = await self._queue.add(run, tasks, paces)
        if not self._left:
            raise QueueUnavailable("gone")
        return answers


async def test_every_line_is_a_task_a_duplicate_or_rejected_with_a_reason(
    queue: Queue, run: Run, tmp_path: Path
) -> None:
    path = listed(
        tmp_path,
        "https://a.example/x",
        "# a comment",
        "https://A.example:443/x#top",
        "www.b.example/ü",
        "mailto:me@a.example",
        "",
        "https://",
        "nonsense",
    )
    going = list_reader(queue, run, path)
    assert not going.done
    assert await going.run() == ListReport(read=7, added=2, duplicates=1, rejected=3, completed=1, blank=1, empty=1)
    assert going.done and load_report(tmp_path, run) == going.report
    assert await urls(queue, run) == ["https://a.example/x", "https://www.b.example/%C3%BC"]
    aside = rejected(tmp_path)
    assert [(line, text) for line, text, _ in aside] == [
        (3, "https://A.example:443/x#top"),
        (5, "mailto:me@a.example"),
        (7, "https://"),
        (8, "nonsense"),
    ]
    assert aside[0][2] == DUPLICATE_REASON and all(reason for _, _, reason in aside)


async def test_a_task_knows_its_line_its_row_and_how_it_was_written(queue: Queue, run: Run, tmp_path: Path) -> None:
    path = listed(tmp_path, "sku,url", "7,https://a.example/", "8,b.example", name="urls.csv")
    await list_reader(queue, run, path).run()
    claimed = (await queue.claim("w", 10)).tasks
    assert {task.url: task.meta for task in claimed} == {
        "https://a.example/": {"line": 2, "row": {"sku": "7"}},
        "https://b.example/": {"line": 3, "input": "b.example", "row": {"sku": "8"}},
    }


async def test_hosts_get_the_pace_of_the_run(queue: Queue, run: Run, tmp_path: Path) -> None:
    await list_reader(queue, run, listed(tmp_path, "https://a.example/", "https://b.example/")).run()
    assert {(lane.name, lane.requested) for lane in await queue.lanes()} == {("a.example", 0.5), ("b.example", 0.5)}


async def test_rewritten_urls_are_compared_as_rewritten(queue: Queue, run: Run, tmp_path: Path) -> None:
    path = listed(tmp_path, "https://a.example/?utm_source=x", "https://a.example/")
    going = list_reader(queue, run, path, rewrite=UrlNormalizer(drop_tracking=True))
    assert await going.run() == ListReport(read=2, added=1, duplicates=1)


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("after", [False, True])
async def test_a_batch_that_may_have_been_added_is_accounted_for_once(
    queue: Queue, run: Run, tmp_path: Path, at: int, after: bool
) -> None:
    lines = [f"https://a.example/{n % 1900}" for n in range(2 * BATCH)]
    lines[700] = lines[1700] = "nonsense"
    path = listed(tmp_path, *lines, "https://b.example/", "https://b.example/")
    with pytest.raises(QueueUnavailable):
        await list_reader(Broken(queue, at, after=after), run, path).run()
    report = await list_reader(queue, run, path).run()
    assert report == ListReport(read=2002, added=1899, duplicates=101, rejected=2)
    assert len(await urls(queue, run)) == 1899
    assert Counter(reason == DUPLICATE_REASON for _, _, reason in rejected(tmp_path)) == {True: 101, False: 2}


@pytest.mark.parametrize("after", [False, True])
async def test_a_lost_answer_turns_no_line_into_a_duplicate(
    queue: Queue, run: Run, tmp_path: Path, after: bool
) -> None:
    path = listed(tmp_path, "https://a.example/1", "https://a.example/2", "https://a.example/1", "nonsense")
    going = list_reader(Broken(queue, 1, after=after), run, path, outage_timeout=HANG)
    assert await going.run() == ListReport(read=4, added=2, duplicates=1, rejected=1)
    assert [line for line, *_ in rejected(tmp_path)] == [3, 4]


async def test_while_the_queue_is_away_it_says_what_it_waits_for(queue: Queue, run: Run, tmp_path: Path) -> None:
    told: list[str] = []

    class Away(Broken):
        async def add(self, *given: Any) -> list[Admission]:
            told.append(going.waits_for)
            return await super().add(*given)

    away = Away(queue, 1, after=False)
    going = list_reader(away, run, listed(tmp_path, "https://a.example/1"), outage_timeout=HANG)
    await going.run()
    assert told == ["", "gone"] and not going.waits_for


async def test_a_queue_that_does_not_answer_is_waited_for_aloud(
    queue: Queue, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some try by themselves for a while before they say that the server is away."""
    monkeypatch.setattr(module, "SLOW_ANSWER", 0.0)
    told: list[str] = []

    class Silent(Broken):
        async def now(self) -> int:
            told.append(going.waits_for)
            return await self._queue.now()

    going = list_reader(Silent(queue, 0, after=False), run, listed(tmp_path, "https://a.example/1"))
    await going.run()
    assert told == ["the queue has not answered for 0 s"] and not going.waits_for


@pytest.mark.parametrize("after", [False, True])
async def test_a_crashed_batch_turns_no_line_into_one_that_was_seen(queue: Queue, tmp_path: Path, after: bool) -> None:
    first = await queue.start_run(NewRun("list", "before", "before", seen_set="prices"))
    await queue.add(first.id, [Task(f"https://a.example/{n}", "a.example", _digest(n)) for n in (1, 3)])
    run = await queue.start_run(NewRun("list", "key", "7KQ2X", seen_set="prices"))
    path = listed(tmp_path, *(f"https://a.example/{n}" for n in (1, 2, 3, 4, 2)))
    with pytest.raises(QueueUnavailable):
        await list_reader(Broken(queue, 1, after=after), run, path).run()
    going = list_reader(queue, run, path)
    assert await going.run() == ListReport(read=5, added=2, duplicates=1, seen=2)
    assert await urls(queue, run) == ["https://a.example/2", "https://a.example/4"]
    assert [(line, reason) for line, _, reason in rejected(tmp_path)] == [
        (1, "seen in earlier runs (prices)"),
        (3, "seen in earlier runs (prices)"),
        (5, DUPLICATE_REASON),
    ]


async def _fail(queue: Queue, run: Run, *numbers: int) -> None:
    """These pages fail in a run, once each."""
    pace = {"a.example": UNLIMITED_PACE}
    await queue.add(run.id, [Task(f"https://a.example/{n}", "a.example", _digest(n)) for n in numbers], pace)
    claim = await queue.claim("w", 10)
    await queue.settle([Outcome(it.id, it.lease, "dead", cause="http.500") for it in claim.tasks])


@pytest.mark.parametrize("after", [False, True])
async def test_lines_that_failed_too_often_before_are_set_aside(queue: Queue, tmp_path: Path, after: bool) -> None:
    for number in (1, 2):
        await _fail(queue, await queue.start_run(NewRun("list", f"key{number}", f"before{number}")), 1, number + 1)
    run = await queue.start_run(NewRun("list", "key", "7KQ2X"))
    path = listed(tmp_path, *(f"https://a.example/{n}" for n in (1, 2, 3, 4, 1)))
    with pytest.raises(QueueUnavailable):
        await list_reader(Broken(queue, 1, after=after), run, path, skip_failing=2).run()
    if after:  # what that attempt has added fails a second time, and is a line of the run all the same
        await _fail(queue, run, 2)
    assert await list_reader(queue, run, path, skip_failing=2).run() == ListReport(read=5, added=3, failing=2)
    assert await urls(queue, run) == [f"https://a.example/{n}" for n in (2, 3, 4)]
    assert rejected(tmp_path) == [(n, "https://a.example/1", FAILING_REASON) for n in (1, 5)]


async def test_a_page_found_meanwhile_is_not_taken_for_a_line_of_the_crashed_batch(
    queue: Queue, run: Run, tmp_path: Path
) -> None:
    path = listed(tmp_path, "https://a.example/1", "https://a.example/2")
    (first, second) = (Task(f"https://a.example/{n}", "a.example", _digest(n)) for n in (1, 2))
    with pytest.raises(QueueUnavailable):
        await list_reader(Broken(queue, 1, after=False), run, path).run()
    await queue.add(run.id, [first], {"a.example": Pace(0, 0)})
    claim = await queue.claim("w", 1)
    found = msgspec.structs.replace(second, parent=claim.tasks[0].id)
    await queue.settle([Outcome(claim.tasks[0].id, claim.lease, "done", found=(found,))])
    assert await list_reader(queue, run, path).run() == ListReport(read=2, added=1, duplicates=1)


def _digest(number: int) -> bytes:
    return request_digest(f"https://a.example/{number}")


async def test_lines_added_at_the_end_are_taken_when_it_goes_on(queue: Queue, run: Run, tmp_path: Path) -> None:
    path = listed(tmp_path, "https://a.example/1", "nonsense")
    await list_reader(queue, run, path).run()
    path = listed(tmp_path, "https://a.example/1", "nonsense", "https://a.example/2", "more nonsense")
    assert await list_reader(queue, run, path).run() == ListReport(read=4, added=2, rejected=2)
    assert [line for line, *_ in rejected(tmp_path)] == [2, 4]


@pytest.mark.parametrize("more", [["https://a.example/3"], ["# a comment", "nonsense"]])
async def test_a_list_that_grew_after_its_run_had_ended_is_refused(
    queue: Queue, run: Run, tmp_path: Path, more: list[str]
) -> None:
    lines = ["https://a.example/1", "https://a.example/2"]
    await list_reader(queue, run, listed(tmp_path, *lines)).run()
    await refuse_changed_list(open_source(listed(tmp_path, *lines, "# no entry")), tmp_path, run)
    await refuse_changed_list(ArgumentSource(["https://a.example/1", "https://a.example/2"]), tmp_path, run)
    with pytest.raises(UsageError, match=r"urls\.txt was changed since run 7KQ2X read it to its end") as caught:
        await refuse_changed_list(open_source(listed(tmp_path, *lines, *more)), tmp_path, run)
    assert "--fresh" in caught.value.hint


@pytest.mark.parametrize("break_at", [None, (1, False), (1, True), (2, True), (3, True)])
async def test_lines_past_the_page_limit_are_set_aside_and_only_the_first_ones_are_added(
    queue: Queue, tmp_path: Path, break_at: tuple[int, bool] | None
) -> None:
    run = await queue.start_run(NewRun("list", "limited", "8KQ2X", max_pages=5))
    lines = [f"https://a.example/{n // 3}" for n in range(2 * BATCH)]
    lines[1] = "nonsense"
    path = listed(tmp_path, *lines)
    if break_at:
        with pytest.raises(QueueUnavailable):
            await list_reader(Broken(queue, break_at[0], after=break_at[1]), run, path).run()
    report = await list_reader(queue, run, path).run()
    assert report.read == report.added + report.not_added == 2 * BATCH
    assert await urls(queue, run) == [f"https://a.example/{n}" for n in range(6)], "one waits, so that it can go on"
    assert (report.added, report.rejected, report.beyond) == (5, 1, 2 * BATCH - 15)
    aside = rejected(tmp_path)
    assert [line for line, *_ in aside] == [2, *(n for n in range(3, 14) if n % 3 != 1), *range(14, 2001)]
    assert aside[-1] == (2 * BATCH, lines[-1], "past the page limit of 5")


@pytest.mark.parametrize("limit", [7, 0])
async def test_with_a_higher_page_limit_lines_that_were_left_out_are_added(
    queue: Queue, tmp_path: Path, limit: int
) -> None:
    run = await queue.start_run(NewRun("list", "limited", "8KQ2X", max_pages=5))
    lines = [f"https://a.example/{n // 3}" for n in range(30)]
    path = listed(tmp_path, *lines, "nonsense", lines[0], lines[-1])
    await list_reader(queue, run, path).run()
    assert (await list_reader(queue, run, path).run()).added == 5, "the limit is what it was"
    run = await queue.set_max_pages(run.id, limit)
    report = await list_reader(queue, run, path).run()
    added = limit or 10
    assert await urls(queue, run) == [f"https://a.example/{n}" for n in range(min(10, added + 1))]
    assert (report.read, report.added, report.rejected) == (33, added, 1)
    assert report.beyond == (11 if limit else 0)
    assert rejected(tmp_path)[-1][0] == 33


async def test_a_list_under_a_limit_leaves_nothing_in_a_seen_set_that_is_not_fetched(
    queue: Queue, tmp_path: Path
) -> None:
    run = await queue.start_run(NewRun("list", "limited", "8KQ2X", max_pages=2, seen_set="daily"))
    await list_reader(queue, run, listed(tmp_path, *(f"https://a.example/{n}" for n in range(5)))).run()
    assert [(found.name, found.entries) for found in await queue.seen_sets()] == [("daily", 2)]


@pytest.mark.parametrize("lines", [["https://a.example/0", "https://a.example/2"], ["https://a.example/1"]])
async def test_a_list_changed_where_it_was_read_already_is_refused(
    queue: Queue, run: Run, tmp_path: Path, lines: list[str]
) -> None:
    path = listed(tmp_path, "https://a.example/1", "https://a.example/2")
    await list_reader(queue, run, path).run()
    with pytest.raises(UsageError, match="was changed in the part that run 7KQ2X has read") as caught:
        await list_reader(queue, run, listed(tmp_path, *lines)).prepare()
    assert "--fresh" in caught.value.hint


async def test_a_position_of_another_run_of_that_name_is_not_believed(queue: Queue, run: Run, tmp_path: Path) -> None:
    path = listed(tmp_path, "https://a.example/1")
    await list_reader(queue, run, path).run()
    await queue.set_run(run.id, "cancel")
    await queue.purge(run=run.id)
    other = await queue.start_run(NewRun("list", "key", "7KQ2X"))
    assert load_report(tmp_path, other) == ListReport(), "that report is another run's"
    assert (await list_reader(queue, other, path).run()).added == 1
    assert await urls(queue, other) == ["https://a.example/1"]
    await refuse_changed_list(open_source(path), tmp_path, other)


async def test_a_run_that_was_ended_takes_no_more_lines(queue: Queue, run: Run, tmp_path: Path) -> None:
    await queue.set_run(run.id, "cancel")
    going = list_reader(queue, run, listed(tmp_path, "https://a.example/1"))
    assert (await going.run()).added == 0
    assert going.stopped and not going.done


async def test_a_stop_ends_it_between_batches_and_the_next_goes_on(queue: Queue, run: Run, tmp_path: Path) -> None:
    path = listed(tmp_path, *(f"https://a.example/{n}" for n in range(3 * BATCH)))
    going = list_reader(queue, run, path)
    task = asyncio.create_task(going.run())
    while not (await queue.stats(run.id)).seen:
        await asyncio.sleep(0)
    going.stop()
    assert 0 < (await task).read < 3 * BATCH and not going.done
    assert (await list_reader(queue, run, path).run()) == ListReport(read=3 * BATCH, added=3 * BATCH)


async def test_a_cancelled_seeding_goes_on_too(queue: Queue, run: Run, tmp_path: Path) -> None:
    path = listed(tmp_path, *(f"https://a.example/{n}" for n in range(5 * BATCH)))
    for _ in range(3):
        task = asyncio.create_task(list_reader(queue, run, path).run())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (await list_reader(queue, run, path).run()) == ListReport(read=5 * BATCH, added=5 * BATCH)


async def test_a_hundred_thousand_lines_stay_within_bounded_memory(queue: Queue, run: Run, tmp_path: Path) -> None:
    sizes = []
    for lines in (2_000, 100_000):
        with (tmp_path / "urls.txt").open("w") as file:
            file.writelines(f"https://shop{n % 99}.example/product/{n % 99_000}\n" for n in range(lines))
        child = [sys.executable, "-c", CHILD, str(tmp_path)]
        said = await asyncio.to_thread(subprocess.check_output, child, text=True)
        sizes.append(int(said.split()[-1]))
    assert (await queue.stats(run.id)).seen == 99_000
    assert sizes[1] - sizes[0] < 24_000  # kilobytes; SQLite's cache is the most of it


async def test_killed_at_any_moment_every_line_is_accounted_for_once(queue: Queue, run: Run, tmp_path: Path) -> None:
    lines = [f"https://shop{n % 7}.example/{n % 28_000}" for n in range(30_000)]
    lines[::100] = [f"nonsense {n}" for n in range(300)]
    path = listed(tmp_path, *lines)
    dice, kills = random.Random(7), 0
    for _ in range(8):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        try:
            child.wait(0.02 + dice.random() * 0.1)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            kills += 1
        child.wait()
        child.stdout.close()
    assert kills > 1
    report = await list_reader(queue, run, path).run()
    addresses = [line for line in lines if line.startswith("https")]
    assert (report.read, report.rejected) == (30_000, 300)
    assert sorted(await urls(queue, run)) == sorted(set(addresses))
    assert (report.added, report.duplicates) == (len(set(addresses)), len(addresses) - len(set(addresses)))
    aside = rejected(tmp_path)
    assert len({line for line, *_ in aside}) == len(aside) == report.rejected + report.duplicates


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (
            ListReport(500, 488, 9, 3),
            "Read 500 lines of urls.txt: 488 to fetch, 9 duplicates, 3 not URLs (→ out.rejected.csv)",
        ),
        (ListReport(1, 1), "Read 1 line of urls.txt: 1 to fetch"),
        (ListReport(2, 1, 0, 1), "Read 2 lines of urls.txt: 1 to fetch, 1 not a URL (→ out.rejected.csv)"),
        (
            ListReport(9, 4, 1, beyond=4),
            "Read 9 lines of urls.txt: 4 to fetch, 1 duplicate, 4 past the page limit (→ out.rejected.csv)",
        ),
        (
            ListReport(9, 4, 1, blank=4, empty=3),
            "Read 9 lines of urls.txt: 4 to fetch, 1 duplicate, 4 blank (→ out.rejected.csv)",
        ),
        (ListReport(9, 6, blank=3, empty=3), "Read 9 lines of urls.txt: 6 to fetch, 3 blank"),
        (ListReport(2, 2, completed=1), "Read 2 lines of urls.txt: 2 to fetch; 1 had no http:// or https://"),
    ],
)
def test_what_became_of_a_list_is_said_in_one_line(report: ListReport, said: str) -> None:
    class Urls:
        name, unit = "urls.txt", "line"

    assert describe_report(report, Urls(), "out.rejected.csv") == said  # type: ignore[arg-type]
    seen = describe_report(ListReport(9, 4, seen=1_200), Urls(), "", "prices")  # type: ignore[arg-type]
    assert seen == "Read 9 lines of urls.txt: 4 to fetch, 1,200 seen in earlier runs (prices)"
    assert describe_rejected(ListReport(500, 488, 9, 3)) == "9 duplicates · 3 not URLs"
    assert describe_report(ListReport(2, 2), ArgumentSource([])) == "Read 2 URLs of the command line: 2 to fetch"


def test_a_source_that_knows_of_a_problem_is_believed() -> None:
    assert module.task_from_entry(UrlEntry(1, "https://a.example/", problem="too long"), None) == "too long"


async def test_rows_without_a_url_are_blank_and_those_with_other_cells_are_set_aside(
    queue: Queue, run: Run, tmp_path: Path
) -> None:
    path = listed(tmp_path, "sku,url", "7,https://a.example/", "8,", "", "9,n/a", name="urls.csv")
    going = list_reader(queue, run, path)
    assert await going.run() == ListReport(read=4, added=1, rejected=1, blank=2, empty=1)
    assert rejected(tmp_path) == [(3, "", "nothing in column url"), (5, "n/a", "not a URL")]
    assert going.report.not_added == 2 and describe_rejected(going.report) == "1 not a URL · 1 blank"


async def test_a_list_that_was_begun_before_empty_lines_were_counted_goes_on(
    queue: Queue, run: Run, tmp_path: Path
) -> None:
    path = listed(tmp_path, "https://a.example/", "", "https://b.example/")
    await list_reader(queue, run, path).run()
    place = module.position_path(tmp_path, run)
    position = msgspec.json.decode(place.read_bytes(), type=module.ListPosition)
    print_ = module._new_fingerprint()
    module._update_fingerprint(print_, [UrlEntry(1, "https://a.example/"), UrlEntry(3, "https://b.example/")])
    old = msgspec.structs.replace(
        position, report=ListReport(read=2, added=2), counts_empty=False, done=False, print=print_.hexdigest()
    )
    place.write_bytes(msgspec.json.encode(old))
    with path.open("a") as file:
        file.write("\nhttps://c.example/\n")
    assert await list_reader(queue, run, path).run() == ListReport(read=3, added=3)


async def test_a_list_that_goes_on_with_other_settings_tells_its_lanes(queue: Queue, run: Run, tmp_path: Path) -> None:
    path = listed(tmp_path, "https://a.example/1", "https://a.example/2", "https://b.example/")
    await list_reader(queue, run, path, settings={"delay": 9.0}).run()
    again = list_reader(queue, run, path, settings={"delay": 9.0})
    again._pace = lambda lane: Pace(0.0, 0)
    await again.run()
    assert {lane.spacing for lane in await queue.lanes(run=run.id)} == {0.5}, "nothing has changed"
    again = list_reader(queue, run, path, settings={})
    again._pace = lambda lane: Pace(0.0, 0)
    await again.run()
    assert {lane.spacing for lane in await queue.lanes(run=run.id)} == {0.0}
    assert (await queue.stats(run.id)).seen == 3
