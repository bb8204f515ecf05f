"""Outbox: what settled tasks want done elsewhere is there exactly when they count, until it is acknowledged."""

from __future__ import annotations

import pytest

from conformance.harness import QueueHarness, outcome, page, pages
from shoal.core.task import OutboxEntry, digest
from shoal.errors import UsageError
from shoal.queue.base import MAX_OUTBOX_BYTES, MAX_OUTBOX_ENTRIES, MAX_OUTBOX_ENTRY_BYTES, MAX_OUTBOX_PER_RUN

KIND = "follow-up"


def entry(key: str, kind: str = KIND, data: bytes = b'{"a":1}') -> OutboxEntry:
    return OutboxEntry(kind, key, data)


async def settle_with(harness: QueueHarness, run: int, *keys: str, kind: str = KIND) -> None:
    """One task of the run is done and leaves these entries."""
    await harness.add(run, [page(f"with {keys}{kind}")])
    (leased,) = (await harness.claim()).tasks
    assert await harness.queue.settle([outcome(leased, outbox=tuple(entry(key, kind) for key in keys))]) == ["ok"]


async def keys(harness: QueueHarness, kind: str = KIND) -> list[str]:
    return [it.key for it in await harness.queue.outbox(kind)]


async def test_entries_come_with_their_outcome_by_kind_and_in_order(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3))
    one, two, three = (await harness.claim()).tasks
    data = b"\x00\xff not text"
    await harness.queue.settle(
        [
            outcome(one, outbox=(entry("a"), entry("b\u00e9", data=data))),
            outcome(two, outbox=(entry("other", "feed"),)),
            outcome(three, outbox=(entry("c"),)),
        ]
    )
    found = await harness.queue.outbox(KIND)
    assert [(it.run, it.kind, it.key, it.data) for it in found] == [
        (run, KIND, "a", b'{"a":1}'), (run, KIND, "b\u00e9", data), (run, KIND, "c", b'{"a":1}'),
    ]  # fmt: skip
    assert [it.seq for it in found] == sorted({it.seq for it in found})
    assert await keys(harness, "feed") == ["other"]
    assert await harness.queue.outbox("nobody") == []
    assert (await harness.stats(run)).outbox == 4


async def test_pages_of_entries_follow_each_other(harness: QueueHarness) -> None:
    run = await harness.run()
    await settle_with(harness, run, *(f"k{n}" for n in range(7)))
    first = await harness.queue.outbox(KIND, limit=3)
    second = await harness.queue.outbox(KIND, after=first[-1].seq, limit=3)
    rest = await harness.queue.outbox(KIND, after=second[-1].seq, limit=3)
    assert [it.key for it in (*first, *second, *rest)] == [f"k{n}" for n in range(7)]


@pytest.mark.parametrize("result", ["retry", "dead", "released", "cancelled", "part"])
async def test_only_what_is_done_leaves_entries(harness: QueueHarness, result: str) -> None:
    run = await harness.run()
    await harness.add(run, [page("a")])
    (leased,) = (await harness.claim()).tasks
    assert await harness.queue.settle([outcome(leased, result, cause="http.500", outbox=(entry("x"),))]) == ["ok"]
    assert await keys(harness) == []
    assert (await harness.stats(run)).outbox == 0


async def test_answers_that_do_not_count_leave_no_entries(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("a")])
    (leased,) = (await harness.claim(lease=5.0)).tasks
    await harness.advance(6)
    await harness.queue.reap()
    late = outcome(leased, outbox=(entry("late"),))
    assert await harness.queue.settle([late]) == ["stale"]
    assert await keys(harness) == []
    (again,) = (await harness.claim()).tasks
    good = outcome(again, outbox=(entry("good"),))
    assert await harness.queue.settle([good]) == ["ok"]
    assert await harness.queue.settle([good]) == ["already"]
    assert await keys(harness) == ["good"]
    assert (await harness.stats(run)).outbox == 1


async def test_a_page_that_is_another_leaves_no_entries(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(2))
    one, two = (await harness.claim()).tasks
    await harness.queue.settle([outcome(one, outbox=(entry("one"),))])
    await harness.queue.settle([outcome(two, redirect_digest=digest(one.url), outbox=(entry("two"),))])
    assert await keys(harness) == ["one"]


async def test_what_is_acknowledged_is_gone_and_repeating_it_is_harmless(harness: QueueHarness) -> None:
    run, other = await harness.run(), await harness.run("other")
    await settle_with(harness, run, "a", "b", "c")
    await settle_with(harness, other, "d")
    first, second, third, fourth = await harness.queue.outbox(KIND)
    assert await harness.queue.acknowledge([first.seq, third.seq, fourth.seq]) == 3
    assert await harness.queue.acknowledge([first.seq, third.seq, fourth.seq, 10**9]) == 0
    assert await harness.queue.acknowledge([second.seq, second.seq]) == 1
    assert await harness.queue.acknowledge([]) == 0
    assert await keys(harness) == []
    for number in (run, other):
        assert (await harness.stats(number)).outbox == 0


async def test_no_number_of_an_entry_is_given_twice(harness: QueueHarness) -> None:
    run = await harness.run()
    await settle_with(harness, run, "a")
    (last,) = await harness.queue.outbox(KIND)
    await harness.queue.acknowledge([last.seq])
    await harness.reopen()
    await settle_with(harness, run, "b")
    (found,) = await harness.queue.outbox(KIND)
    assert found.seq > last.seq


async def test_a_run_is_finished_when_its_outbox_is_drained(harness: QueueHarness) -> None:
    run = await harness.run()
    await settle_with(harness, run, "a")
    with pytest.raises(UsageError, match=r"outbox|entries"):
        await harness.queue.set_run(run, "finish")
    assert not (await harness.stats(run)).is_over
    await harness.queue.acknowledge([it.seq for it in await harness.queue.outbox(KIND)])
    assert (await harness.queue.set_run(run, "finish")).state == "finished"


async def test_entries_of_a_cancelled_run_are_drained_and_late_ones_dropped(harness: QueueHarness) -> None:
    run = await harness.run()
    await settle_with(harness, run, "before")
    await harness.add(run, [page("late")])
    (leased,) = (await harness.claim()).tasks
    await harness.queue.set_run(run, "cancel")
    assert await harness.queue.settle([outcome(leased, outbox=(entry("late"),))]) == ["ok"]
    assert await keys(harness) == ["before"]
    assert (await harness.stats(run)).outbox == 1
    assert await harness.queue.acknowledge([it.seq for it in await harness.queue.outbox(KIND)]) == 1
    assert (await harness.stats(run)).outbox == 0


async def test_entries_go_with_their_run_when_it_is_removed(harness: QueueHarness) -> None:
    run, other = await harness.run(), await harness.run("other")
    await settle_with(harness, run, "a", "b")
    await settle_with(harness, other, "c")
    await harness.queue.set_run(run, "cancel")
    assert await harness.queue.purge(run=run) == 1
    assert await keys(harness) == ["c"]


async def test_a_run_whose_outbox_is_full_waits_and_goes_on_when_it_is_drained(harness: QueueHarness) -> None:
    run, other = await harness.run(), await harness.run("other")
    await harness.add(run, pages(3))
    (leased,) = (await harness.claim(limit=1)).tasks
    await harness.queue.settle([outcome(leased, outbox=tuple(entry(f"k{n}") for n in range(MAX_OUTBOX_PER_RUN)))])
    stats = await harness.stats(run)
    assert (stats.outbox, stats.ready, stats.claimable) == (MAX_OUTBOX_PER_RUN, 2, 0)
    assert (await harness.claim()).tasks == ()
    await harness.add(other, [page("of the other")])
    assert [task.run for task in (await harness.claim()).tasks] == [other], "the others go on"
    (oldest,) = await harness.queue.outbox(KIND, limit=1)
    await harness.queue.acknowledge([oldest.seq])
    assert (await harness.stats(run)).claimable == 2
    assert len((await harness.claim()).tasks) == 2


@pytest.mark.parametrize("what", ["kind", "no kind", "entry", "bytes", "entries"])
async def test_entries_beyond_the_limits_leave_nothing_behind(harness: QueueHarness, what: str) -> None:
    run = await harness.run()
    await harness.add(run, [page("a")])
    (leased,) = (await harness.claim()).tasks
    large = b"x" * (MAX_OUTBOX_ENTRY_BYTES - 100)
    outbox = {
        "kind": (entry("k", "k" * 41),),
        "no kind": (entry("k", ""),),
        "entry": (entry("k", data=b"x" * MAX_OUTBOX_ENTRY_BYTES),),
        "bytes": (entry("k", data=large),) * (1 + MAX_OUTBOX_BYTES // len(large)),
        "entries": (entry("k"),) * (MAX_OUTBOX_ENTRIES + 1),
    }[what]
    with pytest.raises(ValueError, match="outbox"):
        await harness.queue.settle([outcome(leased, records=(b"{}",), outbox=outbox)])
    stats = await harness.stats(run)
    assert (stats.leased, stats.records, stats.outbox) == (1, 0, 0)
    assert await harness.queue.settle([outcome(leased)]) == ["ok"]


async def test_a_run_is_moved_when_its_outbox_is_drained(harness: QueueHarness) -> None:
    run = await harness.run()
    await settle_with(harness, run, "a")
    await harness.queue.set_run(run, "pause")
    with pytest.raises(UsageError, match="outbox"):
        await harness.queue.export_run(run)
    await harness.queue.acknowledge([it.seq for it in await harness.queue.outbox(KIND)])
    assert len(await harness.queue.export_run(run)) == 1


async def test_the_outbox_is_recounted(harness: QueueHarness) -> None:
    run = await harness.run()
    await settle_with(harness, run, "a", "b")
    assert (await harness.queue.recount(run)).outbox == 2
