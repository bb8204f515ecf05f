"""Papers: documents with versions, and how tasks are to be asked for."""

from __future__ import annotations

from conformance.world import World, page
from shoal.core.task import Ask


async def test_a_paper_comes_back_as_it_was_kept(world: World) -> None:
    kept = await world.queue.keep_paper("template", "books", "a: ü\n\x00")
    assert (kept.version, kept.text) == (1, "a: ü\n\x00")
    assert await world.queue.paper("template", "books") == kept


async def test_the_same_text_again_is_the_same_version(world: World) -> None:
    first = await world.queue.keep_paper("template", "books", "a")
    assert await world.queue.keep_paper("template", "books", "a") == first


async def test_another_text_is_the_next_version_and_the_old_one_stays(world: World) -> None:
    await world.queue.keep_paper("template", "books", "a")
    second = await world.queue.keep_paper("template", "books", "b")
    third = await world.queue.keep_paper("template", "books", "a")
    assert (second.version, third.version) == (2, 3)
    first = await world.queue.paper("template", "books", 1)
    assert first is not None and first.text == "a"
    assert await world.queue.paper("template", "books") == third


async def test_papers_are_listed_by_kind_and_name_newest_only(world: World) -> None:
    for name, text in (("b", "1"), ("a", "1"), ("b", "2")):
        await world.queue.keep_paper("template", name, text)
    await world.queue.keep_paper("fill", "c", "1")
    assert [(it.name, it.version) for it in await world.queue.papers("template")] == [("a", 1), ("b", 2)]


async def test_what_is_not_there_is_none(world: World) -> None:
    await world.queue.keep_paper("template", "books", "a")
    assert await world.queue.paper("template", "books", 2) is None
    assert await world.queue.paper("fill", "books") is None
    assert await world.queue.papers("fill") == []


ASK = Ask(method="POST", headers=(("X-A", "ü"),), body=b"\x00\xff", session="s", proxy="fast", auth="shop")


async def test_a_task_keeps_how_it_is_to_be_asked_for(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("a", ask=ASK), page("b")])
    asked = {leased.url[-1]: leased.ask for leased in (await world.claim()).tasks}
    assert asked == {"a": ASK, "b": None}


async def test_a_revived_task_is_asked_for_as_before(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("a", ask=ASK, meta={"line": 3})])
    await world.settle(await world.one(), "dead", cause="http.404")
    (seen,) = await world.queue.look(run, state="dead")
    assert seen.meta == {"line": 3}
    await world.queue.revive(run)
    assert (await world.one()).ask == ASK


async def test_the_same_batch_again_carries_the_same_asks(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("a", ask=ASK)])
    first = await world.queue.claim("w", 5, request_id="r")
    again = await world.queue.claim("w", 5, request_id="r")
    assert first.tasks[0].ask == again.tasks[0].ask == ASK
