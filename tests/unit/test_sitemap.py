"""Sitemaps, indexes and feeds: what is read of them, and forty that mean no good."""

from __future__ import annotations

import asyncio
import gzip
import time
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest
from pipeline_harness import HOME, PipelineHarness, html

from shoal.core.page import Request, Response
from shoal.core.sitemap import NEST, SITEMAP, SitemapEntry, looks_like_sitemap, parse_date, priority_by_age
from shoal.core.task import LeasedTask, Outcome
from shoal.errors import GiveUp
from shoal.politeness.robots import RobotsVerdict
from shoal.sources.plain_sitemap import PlainEntries
from shoal.sources.sitemap import MAX_ENTRIES, SitemapCounts, SitemapReader
from shoal.sources.start_task import start_task
from shoal.worker.task.pipeline import process_task
from shoal.worker.task.sitemap import AT_ONCE

NS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
ONE = "<url><loc>/a</loc></url>"
DAY = 86_400


def urlset(entries: str, head: str = '<?xml version="1.0"?>') -> bytes:
    return f"{head}<urlset {NS}>{entries}</urlset>".encode()


def read(body: bytes, piece: int = 4_096, *, robots: bool = False) -> tuple[list[str], SitemapCounts]:
    reader, urls = SitemapReader(is_robots=robots), []
    for start in range(0, len(body), piece):
        urls += [entry.url for entry in reader.feed(body[start : start + piece])]
    urls += [entry.url for entry in reader.close()]
    return urls, reader.counts


def laughs(word: str) -> str:
    levels = "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9))
    return f'<!DOCTYPE urlset [<!ENTITY a "{word}">{levels}]>'


RSS = """<rss><channel><link>https://a.test/</link>
<item><title>x</title><link>https://a.test/1</link><pubDate>Tue, 02 Jan 2024 10:00:00 GMT</pubDate></item>
</channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><link href="/"/>
<entry><link rel="edit" href="/e"/><link href="/1"/><updated>2024-01-01T00:00:00Z</updated></entry></feed>"""
RDF = '<rdf:RDF xmlns:rdf="r" xmlns="http://purl.org/rss/1.0/"><item><link>/1</link></item></rdf:RDF>'
NAMESPACES = " ".join(f"xmlns:n{n}='u{n}'" for n in range(100_000))
LATIN_1 = '<?xml version="1.0" encoding="iso-8859-1"?>'
ITSELF = '<!DOCTYPE u [<!ENTITY a "&a;">]>'
NUMBERED = urlset("".join(f"<url><loc>/{n}</loc></url>" for n in range(20_000)))
IMAGES = '<url><loc>/a</loc><i:image xmlns:i="i"><i:loc>/a.png</i:loc></i:image></url>'


@pytest.mark.parametrize(
    ("body", "urls"),
    [
        (urlset(ONE + "<url><loc> /b </loc></url>"), ["/a", "/b"]),
        (urlset("<url><loc><![CDATA[/a?b=1&c=2]]></loc></url>"), ["/a?b=1&c=2"]),
        (urlset("<url><loc>/a?b=1&amp;c=2</loc></url>"), ["/a?b=1&c=2"]),
        (urlset(IMAGES), ["/a"]),
        (f"<sitemapindex {NS}><sitemap><loc>/s.xml</loc></sitemap></sitemapindex>".encode(), ["/s.xml"]),
        (urlset(ONE).replace(NS.encode(), b""), ["/a"]),
        (b"\n \t" + urlset(ONE), ["/a"]),
        (b"\xef\xbb\xbf" + urlset(ONE), ["/a"]),
        (urlset(ONE).decode().replace("?>", ' encoding="utf-16"?>').encode("utf-16"), ["/a"]),
        (urlset("<url><loc>/é</loc></url>", LATIN_1).decode().encode("latin-1"), ["/é"]),
        (gzip.compress(urlset(ONE), mtime=0), ["/a"]),
        (gzip.compress(urlset(ONE)[:40], mtime=0) + gzip.compress(urlset(ONE)[40:], mtime=0), ["/a"]),
        (gzip.compress(b"https://a.test/1\n", mtime=0), ["https://a.test/1"]),
        (b"# a comment\r\nhttps://a.test/1\r\nHTTPS://a.test/2", ["https://a.test/1", "HTTPS://a.test/2"]),
        (RSS.encode(), ["https://a.test/1"]),
        (ATOM.encode(), ["/1"]),
        (RDF.encode(), ["/1"]),
        (urlset(""), []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("piece", [1, 7, 65_536])
def test_what_is_read(body: bytes, urls: list[str], piece: int) -> None:
    assert read(body, piece) == (urls, SitemapCounts(entries=len(urls)))


@pytest.mark.parametrize("piece", [1, 50, 4_096])
@pytest.mark.parametrize(
    "entries",
    [
        "<url><loc>https://a.test/1</loc></url>\n" * 3,
        "<url>\n<loc> /1?a=1&amp;b=&amp;c </loc>\n<lastmod>2024-01-31</lastmod></url>" * 3,
        "<url><loc>/1</loc><lastmod>soon</lastmod><changefreq>daily</changefreq><priority>0.5</priority></url>",
        f"{ONE}<url><lastmod>2024-01-31</lastmod><loc>/2</loc></url>{ONE}",
        f"{ONE}<!-- <url><loc>/2</loc></url> -->{ONE}",
        f"{ONE}<![CDATA[<url><loc>/2</loc></url>]]>{ONE}",
        f"{ONE}<url><loc>/&#50;</loc></url><url><loc>/\u00e9</loc></url>{ONE}",
        f"{ONE}<url><loc>/2</loc></url><url></url><url><loc></loc></url><url><loc>/3</loc",
        f"<url><loc>/{'x' * 9_000}</loc></url>{ONE}{IMAGES}{ONE}",
        f"{' ' * 20_000}{ONE}<x>{ONE}</x>{ONE}</urlset><urlset>{ONE}",
    ],
)
def test_entries_that_are_written_plainly_are_those_that_libxml2_finds(
    entries: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read_all(urlset(entries), piece)
    monkeypatch.setattr(PlainEntries, "feed", lambda self, data: ([], data))
    assert found == read_all(urlset(entries), piece)


def read_all(body: bytes, piece: int) -> tuple[list[SitemapEntry], int, str]:
    """The entries, how many were lost, and the problem that ended it."""
    reader, entries = SitemapReader(), []
    try:
        for start in range(0, len(body), piece):
            entries += reader.feed(body[start : start + piece])
        entries += reader.close()
    except GiveUp as error:
        return entries, 0, str(error)
    return entries, reader.counts.lost, ""


def test_robots_txt_names_sitemaps() -> None:
    lines = b"User-agent: *\nDisallow: /x\nSitemap: https://a.test/s.xml\r\nSITEMAP : /t.xml # that one\n"
    assert read(lines, robots=True)[0] == ["https://a.test/s.xml", "/t.xml"]
    assert read(b"", robots=True)[0] == []


# What is sent, and the cause with which it ends; "" where what can be read counts, and how much was lost.
HOSTILE: dict[str, tuple[Callable[[], bytes], str, int]] = {
    "nothing": (lambda: b"", "not_a_sitemap", 0),
    "blanks": (lambda: b" \n" * 5_000, "not_a_sitemap", 0),
    "one byte": (lambda: b"<", "not_a_sitemap", 0),
    "an HTML page": (lambda: b"<!DOCTYPE html><html><body><a href='/a'>a</a>", "not_a_sitemap", 0),
    "HTML without a doctype": (lambda: b"<html><head></head></html>", "not_a_sitemap", 0),
    "XHTML": (lambda: b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"/>', "not_a_sitemap", 0),
    "a soft 404 with a comment in front": (lambda: b"<!-- x --><HTML><p>not found", "not_a_sitemap", 0),
    "JSON": (lambda: b'{"urls": ["https://a.test/"]}', "not_a_sitemap", 0),
    "an image": (lambda: b"\x89PNG\r\n\x1a\n\x00\x00" * 900, "not_a_sitemap", 0),
    "a PDF": (lambda: b"%PDF-1.7 \x00\x01" * 900, "not_a_sitemap", 0),
    "XML of another kind": (lambda: b"<svg><url><loc>/a</loc></url></svg>", "not_a_sitemap", 0),
    "SOAP": (lambda: b'<s:Envelope xmlns:s="s"/>', "not_a_sitemap", 0),
    "only a declaration": (lambda: b'<?xml version="1.0"?>', "not_a_sitemap", 0),
    "an endless comment": (lambda: b"<!--" + b"x" * 5_000_000, "not_a_sitemap", 0),
    "an endless attribute": (lambda: b'<urlset a="' + b"x" * 12_000_000, "not_a_sitemap", 0),
    "an endless name": (lambda: b"<" + b"x" * 5_000_000, "not_a_sitemap", 0),
    "prose": (lambda: b"we are no sitemap\n" * 300, "not_a_sitemap", 0),
    "an unknown encoding": (lambda: urlset(ONE, '<?xml version="1.0" encoding="x-none"?>'), "", 0),
    "a lie about the encoding": (lambda: urlset(ONE, '<?xml version="1.0" encoding="utf-16"?>'), "not_a_sitemap", 0),
    "UTF-8 that is none": (lambda: urlset(ONE + "<url><loc>/@</loc></url>").replace(b"@", b"\xff\xfe"), "", 1),
    "control characters": (lambda: urlset(ONE + "<url><loc>\x01</loc></url>"), "", 1),
    "a NUL in the middle": (lambda: urlset(ONE + "\x00" + ONE.replace("/a", "/b")), "", 0),
    "a billion laughs": (lambda: urlset("<url><loc>&j;</loc></url>", laughs("lol" * 9)), "decode", 1),
    "a billion of nothing": (lambda: urlset("<url><loc>&j;</loc></url>", laughs("")), "decode", 1),
    "quadratic blowup": (
        lambda: urlset("<url><loc>&a;</loc></url>" * 3_000, f'<!DOCTYPE urlset [<!ENTITY a "{"x" * 100_000}">]>'),
        "decode",
        1,
    ),
    "a file of this machine": (
        lambda: urlset(ONE + "<url><loc>&x;</loc></url>", '<!DOCTYPE urlset [<!ENTITY x SYSTEM "file:///etc/passwd">]>'),
        "",
        1,
    ),
    "an external DTD": (lambda: urlset(ONE, '<!DOCTYPE urlset SYSTEM "http://127.0.0.1:9/x.dtd">'), "", 0),
    "an entity of itself": (lambda: urlset("<url><loc>&a;</loc></url>", ITSELF), "decode", 1),
    "nested a million deep": (lambda: b"<urlset>" * 1_000_000, "too_complex", 0),
    "nested entries": (lambda: urlset("<url>" * 50 + "<loc>/a</loc>" + "</url>" * 50), "", 49),
    "a gzip bomb": (lambda: gzip.compress(b"<urlset>" + b" " * 60_000_000), "too_large", 0),
    "gzip that breaks off": (lambda: gzip.compress(NUMBERED)[:-50], "", 2),
    "gzip with a wrong sum": (lambda: gzip.compress(urlset(ONE))[:-8] + b"\0" * 8, "decode", 1),
    "gzip of noise": (lambda: b"\x1f\x8b\x08\x00" + b"\xff" * 5_000, "decode", 0),
    "gzip in gzip": (lambda: gzip.compress(gzip.compress(urlset(ONE))), "not_a_sitemap", 0),
    "a URL of 12 MB": (lambda: urlset(ONE + f"<url><loc>{'x' * 12_000_000}</loc></url>"), "", 1),
    "a line of 12 MB": (lambda: b"https://a.test/" + b"x" * 12_000_000 + b"\nhttps://a.test/a\n", "", 1),
    "entries without a URL": (lambda: urlset(ONE + "<url><lastmod>2024-01-01</lastmod></url>" * 5), "", 5),
    "XML that breaks off": (lambda: urlset(ONE + "<url><loc>/b</loc>")[:-9], "", 1),
    "tags that do not match": (lambda: urlset(ONE + "<url><loc>/b</url>" + ONE), "", 1),
    "more entries than are read": (lambda: b"https://a.test/1\n" * (MAX_ENTRIES + 10), "", 0),
    "a hundred thousand namespaces": (
        lambda: f"<urlset {NAMESPACES}>{ONE}</urlset>".encode(),
        "",
        0,
    ),
    "two documents": (lambda: urlset(ONE) * 2, "", 0),
}  # fmt: skip


def test_there_are_forty_of_them() -> None:
    assert len(HOSTILE) >= 40


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_sitemap_ends_within_its_limits_with_the_right_word(name: str) -> None:
    make, cause, lost = HOSTILE[name]
    body = make()
    tracemalloc.start()
    began = time.process_time()
    try:
        if cause:
            with pytest.raises(GiveUp) as told:
                read(body, 65_536)
            assert told.value.cause == cause
        else:
            urls, counts = read(body, 65_536)
            assert urls and len(urls) <= MAX_ENTRIES and counts.lost == lost
            assert counts.is_cut == (name == "more entries than are read")
        assert time.process_time() - began < 20
        assert tracemalloc.get_traced_memory()[1] < 64_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", DAY), ("1970-01", 0), ("1970", 0), ("1970-01-01T01:00:00+01:00", 0), ("1970-01-01T00:00Z", 0),
        ("1970-01-01 00:00:01.5Z", 1), ("Thu, 01 Jan 1970 00:00:10 GMT", 10), ("yesterday", None), ("", None),
        ("1970-13-01", None), ("9" * 100, None), ("Thu, 99 Jan 1970 00:00:10 GMT", None),
    ],
)  # fmt: skip
def test_dates_of_sitemaps_and_feeds(text: str, seconds: float | None) -> None:
    assert parse_date(text) == seconds


def test_what_changed_lately_comes_first() -> None:
    now = 100 * DAY
    ages = [(0.5, 2), (3, 1), (30, 0), (-30, 0)]
    assert [priority_by_age(now - age * DAY, now) for age, _ in ages] == [priority for _, priority in ages]


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("https://a.test/sitemap.xml", True), ("https://a.test/x/Sitemap_index.xml.gz?y=1", True),
        ("https://a.test/robots.txt", True), ("https://a.test/blog/feed.xml", True), ("https://a.test/news.rss", True),
        ("https://a.test/sitemap.txt", True), ("https://a.test/sitemap", False), ("https://a.test/", False),
        ("https://sitemap.xml/", False), ("https://a.test/a.xml", False),
    ],
)  # fmt: skip
def test_names_of_sitemaps(url: str, is_one: bool) -> None:
    assert looks_like_sitemap(url) is is_one


def test_a_sitemap_is_not_the_page_at_its_url_and_of_a_site_robots_txt_names_them() -> None:
    page, sitemap = start_task("https://a.test/sitemap.xml"), start_task("sitemap:https://a.test/sitemap.xml")
    assert (sitemap.kind, sitemap.revisit) == (SITEMAP, True) and page.digest != sitemap.digest
    assert start_task("sitemap:https://a.test").url == "https://a.test/robots.txt"


class SitemapHarness(PipelineHarness):
    """Its queue takes parts and nested sitemaps, and remembers them."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[Outcome] = []
        self.nested: list[str] = []
        self.verdict_of_parts = "ok"

    async def settle(self, outcomes: list[Outcome], paces: object) -> list[str]:
        self.parts += outcomes
        return [self.verdict_of_parts]

    async def add(self, run: int, tasks: list[object], paces: object) -> list[str]:
        self.nested += [f"{task.url} {task.meta} {task.revisit}" for task in tasks]  # type: ignore[attr-defined]
        return ["added"] * len(tasks)


def answer(body: bytes, status: int = 200) -> Response:
    return Response("", status, (("content-type", "application/xml"),), body)


@pytest.fixture
def harness() -> SitemapHarness:
    return SitemapHarness()


async def test_entries_become_pages_of_depth_0_with_their_date_and_a_large_one_goes_in_parts(
    harness: SitemapHarness,
) -> None:
    entries = "".join(f"<url><loc>/{n}</loc><lastmod>2024-01-0{n % 9 + 1}</lastmod></url>" for n in range(2_500))
    harness.answers[HOME] = answer(urlset(entries))
    outcome = await harness.run(kind=SITEMAP, meta={})
    found = [task for part in (*harness.parts, outcome) for task in part.found]
    assert [part.result for part in harness.parts] and {part.result for part in harness.parts} == {"part"}
    assert max(len(part.found) for part in harness.parts) <= 1_000
    assert [task.url for task in found] == [f"{HOME}{n}" for n in range(2_500)]
    assert (found[0].depth, found[0].kind, found[0].meta) == (0, "page", {"lastmod": "2024-01-01"})
    assert outcome.result == "done" and outcome.counters["sitemap.entries"] == 2_500


async def test_few_sitemaps_of_a_host_are_in_memory_at_once(harness: SitemapHarness) -> None:
    context, reading, most = harness.tools(), 0, 0

    async def fetch(request: Request) -> Response:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await asyncio.sleep(0)
        return msgspec.structs.replace(answer(urlset(ONE)), url=request.url)

    async def one(number: int) -> None:
        nonlocal reading
        url = f"{HOME}{number}.xml"
        task = LeasedTask(id=number + 1, lease=9, run=1, lane="a.test", url=url, kind=SITEMAP)
        assert (await process_task(task, context, 100.0)).result == "done"
        reading -= 1

    harness.fetch = fetch  # type: ignore[method-assign]
    await asyncio.gather(*map(one, range(3 * AT_ONCE)))
    assert most == AT_ONCE and not context.sitemap_places


async def test_a_worker_that_lost_its_lease_adds_no_more(harness: SitemapHarness) -> None:
    harness.verdict_of_parts = "stale"
    harness.answers[HOME] = answer(urlset("".join(f"<url><loc>/{n}</loc></url>" for n in range(5_000))))
    outcome = await harness.run(kind=SITEMAP)
    assert outcome.result == "released" and len(harness.parts) == 1


async def test_an_index_leads_to_more_sitemaps_only_so_deep(harness: SitemapHarness) -> None:
    harness.answers[HOME] = answer(b"<sitemapindex><sitemap><loc>/s.xml</loc></sitemap></sitemapindex>")
    await harness.run(kind=SITEMAP, meta={NEST: 4})
    assert harness.nested == [f"{HOME}s.xml {{'{NEST}': 5}} True"]
    outcome = await harness.run(kind=SITEMAP, meta={NEST: 5})
    assert len(harness.nested) == 1 and outcome.skipped == (("depth", "/s.xml"),)


async def test_entries_of_other_hosts_are_judged_by_scope(harness: SitemapHarness) -> None:
    harness.answers[HOME] = answer(urlset("<url><loc>https://other.test/</loc></url>" + ONE))
    outcome = await harness.run(kind=SITEMAP)
    assert [task.url for task in outcome.found] == [f"{HOME}a"]
    assert outcome.skipped == (("scope", "https://other.test/"),)


async def test_html_in_place_of_a_sitemap_is_dead_with_its_cause(harness: SitemapHarness) -> None:
    harness.answers[HOME] = html("<!doctype html><a href=/x>x</a>")
    outcome = await harness.run(kind=SITEMAP)
    assert (outcome.result, outcome.cause) == ("dead", "not_a_sitemap")


@pytest.mark.parametrize(("status", "body"), [(200, b"User-agent: *\n"), (404, b"<html>"), (403, b"")])
async def test_without_a_word_in_robots_txt_the_usual_place_is_tried(
    harness: SitemapHarness, status: int, body: bytes
) -> None:
    harness.verdicts["a.test"] = RobotsVerdict(False)  # which never holds for robots.txt itself
    harness.answers[f"{HOME}robots.txt"] = answer(body, status)
    outcome = await harness.run(f"{HOME}robots.txt", kind=SITEMAP)
    assert outcome.result == "done" and harness.nested == [f"{HOME}sitemap.xml {{'{NEST}': 1, 'guessed': True}} True"]


async def test_a_sitemap_that_was_only_guessed_may_be_missing(harness: SitemapHarness) -> None:
    harness.answers[f"{HOME}sitemap.xml"] = answer(b"", 404)
    guessed = await harness.run(f"{HOME}sitemap.xml", kind=SITEMAP, meta={"guessed": True}, parent=1)
    named = await harness.run(f"{HOME}sitemap.xml", kind=SITEMAP, parent=1)
    assert (guessed.result, guessed.cause) == ("cancelled", "no_sitemap")
    assert (named.result, named.cause) == ("dead", "http.404")
