"""Swap: a document changes only in the hands of who knows its newest version."""

from __future__ import annotations

import asyncio

from conformance.world import World


async def test_a_document_that_is_not_there_is_made_once(world: World) -> None:
    made = await world.queue.swap("lock", "books", "mine", 0)
    assert made is not None and (made.kind, made.name, made.text) == ("lock", "books", "mine")
    assert made.made_at == await world.queue.now()
    assert await world.queue.swap("lock", "books", "yours", 0) is None
    assert await world.queue.paper("lock", "books") == made


async def test_only_the_newest_version_can_be_replaced(world: World) -> None:
    first = await world.queue.swap("lock", "books", "a", 0)
    assert first is not None
    second = await world.queue.swap("lock", "books", "b", first.version)
    assert second is not None and second.version > first.version
    assert await world.queue.swap("lock", "books", "c", first.version) is None
    assert await world.queue.swap("lock", "books", "c", second.version + 1) is None
    assert await world.queue.paper("lock", "books") == second


async def test_the_same_text_again_is_a_new_version(world: World) -> None:
    first = await world.queue.swap("lock", "books", "a", 0)
    assert first is not None
    await world.advance(5)
    again = await world.queue.swap("lock", "books", "a", first.version)
    assert again is not None and again.version > first.version
    assert again.made_at == first.made_at + 5_000_000


async def test_what_was_replaced_is_not_kept(world: World) -> None:
    first = await world.queue.swap("schedule", "books", "a", 0)
    assert first is not None
    second = await world.queue.swap("schedule", "books", "b", first.version)
    assert await world.queue.paper("schedule", "books", first.version) is None
    assert await world.queue.papers("schedule") == [second]


async def test_a_kept_document_can_be_swapped_and_kept_again(world: World) -> None:
    await world.queue.keep_paper("template", "books", "a")
    kept = await world.queue.keep_paper("template", "books", "b")
    swapped = await world.queue.swap("template", "books", "c", kept.version)
    assert swapped is not None and swapped.version > kept.version
    assert await world.queue.paper("template", "books", 1) is None
    after = await world.queue.keep_paper("template", "books", "d")
    assert after.version == swapped.version + 1
    assert await world.queue.paper("template", "books") == after


async def test_a_document_is_removed_by_who_knows_it(world: World) -> None:
    made = await world.queue.swap("seeding", "run-1", "a", 0)
    other = await world.queue.swap("seeding", "run-2", "b", 0)
    assert made is not None
    assert await world.queue.swap("seeding", "run-1", None, made.version + 1) is None
    assert await world.queue.swap("seeding", "run-1", None, made.version) == made
    assert await world.queue.paper("seeding", "run-1") is None
    assert await world.queue.papers("seeding") == [other]
    assert await world.queue.swap("seeding", "run-1", None, made.version) is None
    assert await world.queue.swap("seeding", "run-1", None, 0) is None


async def test_a_document_made_again_has_no_version_of_before(world: World) -> None:
    versions = set()
    for _ in range(3):
        made = await world.queue.swap("lock", "books", "a", 0)
        assert made is not None
        changed = await world.queue.swap("lock", "books", "b", made.version)
        assert changed is not None
        assert not {made.version, changed.version} & versions
        versions |= {made.version, changed.version}
        await world.queue.swap("lock", "books", None, changed.version)
        await world.advance(1)


async def test_documents_outlive_a_restart(world: World) -> None:
    made = await world.queue.swap("lock", "books", "ü\x00", 0)
    queue = await world.reopen()
    assert await queue.paper("lock", "books") == made
    assert made is not None and await queue.swap("lock", "books", "b", made.version) is not None


async def test_of_many_at_once_exactly_one_wins(world: World) -> None:
    handles = [world.queue, await world.open(), await world.open()]
    swaps = [queue.swap("lock", "books", f"{n}", 0) for n, queue in enumerate(handles * 3)]
    won = [paper for paper in await asyncio.gather(*swaps) if paper is not None]
    assert len(won) == 1
    assert await world.queue.paper("lock", "books") == won[0]
