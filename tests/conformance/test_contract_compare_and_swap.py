"""compare_and_swap: a document changes only for a caller that knows its newest version."""

from __future__ import annotations

import asyncio

from conformance.harness import QueueHarness


async def test_a_document_that_is_not_there_is_made_once(harness: QueueHarness) -> None:
    made = await harness.queue.compare_and_swap("lock", "books", "mine", 0)
    assert made is not None and (made.kind, made.name, made.text) == ("lock", "books", "mine")
    assert made.made_at == await harness.queue.now()
    assert await harness.queue.compare_and_swap("lock", "books", "yours", 0) is None
    assert await harness.queue.document("lock", "books") == made


async def test_only_the_newest_version_can_be_replaced(harness: QueueHarness) -> None:
    first = await harness.queue.compare_and_swap("lock", "books", "a", 0)
    assert first is not None
    second = await harness.queue.compare_and_swap("lock", "books", "b", first.version)
    assert second is not None and second.version > first.version
    assert await harness.queue.compare_and_swap("lock", "books", "c", first.version) is None
    assert await harness.queue.compare_and_swap("lock", "books", "c", second.version + 1) is None
    assert await harness.queue.document("lock", "books") == second


async def test_the_same_text_again_is_a_new_version(harness: QueueHarness) -> None:
    first = await harness.queue.compare_and_swap("lock", "books", "a", 0)
    assert first is not None
    await harness.advance(5)
    again = await harness.queue.compare_and_swap("lock", "books", "a", first.version)
    assert again is not None and again.version > first.version
    assert again.made_at == first.made_at + 5_000_000


async def test_what_was_replaced_is_not_kept(harness: QueueHarness) -> None:
    first = await harness.queue.compare_and_swap("schedule", "books", "a", 0)
    assert first is not None
    second = await harness.queue.compare_and_swap("schedule", "books", "b", first.version)
    assert await harness.queue.document("schedule", "books", first.version) is None
    assert await harness.queue.documents("schedule") == [second]


async def test_a_kept_document_can_be_swapped_and_kept_again(harness: QueueHarness) -> None:
    await harness.queue.save_document("template", "books", "a")
    kept = await harness.queue.save_document("template", "books", "b")
    swapped = await harness.queue.compare_and_swap("template", "books", "c", kept.version)
    assert swapped is not None and swapped.version > kept.version
    assert await harness.queue.document("template", "books", 1) is None
    after = await harness.queue.save_document("template", "books", "d")
    assert after.version == swapped.version + 1
    assert await harness.queue.document("template", "books") == after


async def test_a_document_is_removed_by_who_knows_it(harness: QueueHarness) -> None:
    made = await harness.queue.compare_and_swap("seeding", "run-1", "a", 0)
    other = await harness.queue.compare_and_swap("seeding", "run-2", "b", 0)
    assert made is not None
    assert await harness.queue.compare_and_swap("seeding", "run-1", None, made.version + 1) is None
    assert await harness.queue.compare_and_swap("seeding", "run-1", None, made.version) == made
    assert await harness.queue.document("seeding", "run-1") is None
    assert await harness.queue.documents("seeding") == [other]
    assert await harness.queue.compare_and_swap("seeding", "run-1", None, made.version) is None
    assert await harness.queue.compare_and_swap("seeding", "run-1", None, 0) is None


async def test_a_document_made_again_has_no_version_of_before(harness: QueueHarness) -> None:
    versions = set()
    for _ in range(3):
        made = await harness.queue.compare_and_swap("lock", "books", "a", 0)
        assert made is not None
        changed = await harness.queue.compare_and_swap("lock", "books", "b", made.version)
        assert changed is not None
        assert not {made.version, changed.version} & versions
        versions |= {made.version, changed.version}
        await harness.queue.compare_and_swap("lock", "books", None, changed.version)
        await harness.advance(1)


async def test_documents_outlive_a_restart(harness: QueueHarness) -> None:
    made = await harness.queue.compare_and_swap("lock", "books", "ü\x00", 0)
    queue = await harness.reopen()
    assert await queue.document("lock", "books") == made
    assert made is not None and await queue.compare_and_swap("lock", "books", "b", made.version) is not None


async def test_of_many_at_once_exactly_one_wins(harness: QueueHarness) -> None:
    handles = [harness.queue, await harness.open(), await harness.open()]
    swaps = [queue.compare_and_swap("lock", "books", f"{n}", 0) for n, queue in enumerate(handles * 3)]
    won = [document for document in await asyncio.gather(*swaps) if document is not None]
    assert len(won) == 1
    assert await harness.queue.document("lock", "books") == won[0]
