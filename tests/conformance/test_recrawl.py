"""A second run that takes unchanged pages as they were, on every backend."""

from __future__ import annotations

from changing_site import ChangingSite, links

from conformance.harness import QueueHarness


async def test_what_changed_came_and_went_is_counted_and_the_output_is_whole(harness: QueueHarness) -> None:
    site = ChangingSite(harness.queue)
    site.pages = {"/": links("/a", "/b", "/c", "/d"), "/a": "<p>a</p>" + links("/e"), "/b": "<p>b</p>"}
    site.pages |= {"/c": "<p>c</p>", "/d": "<p>d</p>", "/e": "<p>e</p>"}
    first = await site.crawl()
    assert await site.counts(first) == (0, 0, 6, None, 0)
    harness.clock.step(60)

    second = await site.crawl()
    assert site.parsed == []
    assert {answer.partition(" ")[2] for answer in site.requests} == {"304"}
    assert await site.counts(second) == (6, 0, 0, 0, 0)
    assert await site.records(second) == await site.records(first)
    harness.clock.step(60)

    site.pages["/"] = links("/a", "/b", "/d", "/f")
    site.pages |= {"/b": "<p>other</p>", "/f": "<p>f</p>"}
    site.statuses["/d"] = 403
    third = await site.crawl()
    assert sorted(site.parsed) == ["/", "/b", "/f"]
    assert await site.counts(third) == (2, 2, 1, 1, 1)
    assert await site.changes(third) == {"changed /", "changed /b", "new /f", "gone /c", "failed /d"}
    assert await site.records(third) == [b'{"text":"%s"}' % it for it in (b"a", b"e", b"f", b"other")]
    harness.clock.step(60)

    site.statuses.clear()
    fourth = await site.crawl()
    assert site.parsed == [], "what had failed is known from the run before"
    assert await site.counts(fourth) == (6, 0, 0, 0, 0)
