"""Documents with versions, and the request options of tasks."""

from __future__ import annotations

from conformance.harness import QueueHarness, page
from shoal.core.task import RequestOptions


async def test_a_document_comes_back_as_it_was_kept(harness: QueueHarness) -> None:
    kept = await harness.queue.save_document("template", "books", "a: ü\n\x00")
    assert (kept.version, kept.text) == (1, "a: ü\n\x00")
    assert await harness.queue.document("template", "books") == kept


async def test_the_same_text_again_is_the_same_version(harness: QueueHarness) -> None:
    first = await harness.queue.save_document("template", "books", "a")
    assert await harness.queue.save_document("template", "books", "a") == first


async def test_another_text_is_the_next_version_and_the_old_one_stays(harness: QueueHarness) -> None:
    await harness.queue.save_document("template", "books", "a")
    second = await harness.queue.save_document("template", "books", "b")
    third = await harness.queue.save_document("template", "books", "a")
    assert (second.version, third.version) == (2, 3)
    first = await harness.queue.document("template", "books", 1)
    assert first is not None and first.text == "a"
    assert await harness.queue.document("template", "books") == third


async def test_documents_are_listed_by_kind_and_name_newest_only(harness: QueueHarness) -> None:
    for name, text in (("b", "1"), ("a", "1"), ("b", "2")):
        await harness.queue.save_document("template", name, text)
    await harness.queue.save_document("fill", "c", "1")
    assert [(it.name, it.version) for it in await harness.queue.documents("template")] == [("a", 1), ("b", 2)]


async def test_what_is_not_there_is_none(harness: QueueHarness) -> None:
    await harness.queue.save_document("template", "books", "a")
    assert await harness.queue.document("template", "books", 2) is None
    assert await harness.queue.document("fill", "books") is None
    assert await harness.queue.documents("fill") == []


ASK = RequestOptions(
    method="POST", headers=(("X-A", "ü"),), body=b"\x00\xff", session="s", again=2, proxy="fast", auth="shop"
)


async def test_a_task_keeps_how_it_is_to_be_asked_for(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("a", request_options=ASK), page("b")])
    asked = {leased.url[-1]: leased.request_options for leased in (await harness.claim()).tasks}
    assert asked == {"a": ASK, "b": None}


async def test_a_revived_task_is_asked_for_as_before(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("a", request_options=ASK, meta={"line": 3})])
    await harness.settle(await harness.one(), "dead", cause="http.404")
    (seen,) = await harness.queue.list_tasks(run, state="dead")
    assert seen.meta == {"line": 3}
    await harness.queue.revive(run)
    assert (await harness.one()).request_options == ASK


async def test_the_same_batch_again_carries_the_same_asks(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("a", request_options=ASK)])
    first = await harness.queue.claim("w", 5, request_id="r")
    again = await harness.queue.claim("w", 5, request_id="r")
    assert first.tasks[0].request_options == again.tasks[0].request_options == ASK
