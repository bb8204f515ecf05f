"""`--seen NAME`: what one run has had, no later run of the same set fetches again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import sample_queue
from local_fleet import LocalFleet, local_fleet
from server_process import ServerProcess, running_server
from small_site import page

CRAWL = """
import shoal

{name} = shoal.Scraper("{name}", start="{url}")

@{name}.page("*")
def page(page):
    yield {{{{"url": page.url}}}}
    yield from page.follow("a")
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[LocalFleet]:
    with local_fleet("sqlite", tmp_path) as made:
        yield made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with running_server(sample_queue.state_url(tmp_path), "--no-maintenance") as made:
        yield made


def crawl(fleet: LocalFleet, output: str, *more: str) -> list[str]:
    """The paths that a crawl has records of."""
    done = fleet.user.shoal("run", "news.py", "-o", output, "--seen", "news", "--rate", "100/s", *more)
    assert done.code == 0, done.err
    records = (fleet.user.folder / output).read_text().splitlines()
    return sorted("/" + json.loads(line)["url"].split("/", 3)[3] for line in records)


def test_a_crawl_takes_its_start_page_and_what_is_new(here: LocalFleet) -> None:
    here.scraper("news", CRAWL)
    here.site.pages |= {"/": page('<a href="/a">a</a>'), "/a": page("a"), "/b": page("b")}
    assert crawl(here, "one.jsonl") == ["/", "/a"]
    here.site.pages["/"] = page('<a href="/a">a</a> <a href="/b">b</a>')
    assert crawl(here, "two.jsonl") == ["/", "/b"]
    assert len(here.site.hits_for("/a")) == 1
    (found,) = here.user.shoal("seen", "--json").json
    assert (found["name"], found["entries"], found["seen_for"]) == ("news", 3, None)


def test_a_list_is_told_what_earlier_runs_have_had(here: LocalFleet) -> None:
    here.site.pages["/p/*"] = page("x")
    urls = [here.site.url(f"/p/{n}") for n in range(4)]
    for name, some in (("one.txt", urls[:3]), ("two.txt", urls[1:])):
        (here.user.folder / name).write_text("\n".join(some))
    words = ("-f", "body=body", "--seen", "prices", "--seen-for", "30d", "--rate", "100/s")
    assert here.user.shoal("run", "one.txt", "-o", "one.csv", *words).code == 0
    done = here.user.shoal("run", "two.txt", "-o", "two.csv", *words)
    assert done.code == 0, done.err
    assert "1 to fetch, 2 seen in earlier runs (prices)" in done.err + done.out
    assert len((here.user.folder / "two.csv").read_text().splitlines()) == 2
    table = here.user.shoal("seen").out
    assert "prices" in table and "30 d" in table


def test_a_set_is_forgotten_and_cleared_by_command(here: LocalFleet) -> None:
    here.scraper()
    urls = [here.site.url(f"/p/{n}") for n in range(3)]
    (here.user.folder / "urls.txt").write_text("\n".join(urls))

    def submit(*more: str) -> tuple[int, int]:
        done = here.user.shoal("submit", "plain.py", "--urls-file", "urls.txt", "--seen", "all", "--json", *more)
        assert done.code == 0, done.err
        return done.json["enqueued"], done.json["seen"]

    assert submit() == (3, 0)
    assert submit("--fresh") == (0, 3)
    assert here.user.shoal("seen", "forget", "all", urls[1], here.site.url("/never")).code == 0
    assert submit("--fresh") == (1, 2)
    refused = here.user.shoal("seen", "clear", "all")
    assert refused.code == 2 and "--yes" in refused.err
    assert here.user.shoal("seen", "clear", "all", "--yes").code == 0
    assert here.user.shoal("seen", "--json").json == []
    assert submit("--fresh") == (3, 0)


@pytest.mark.parametrize(
    "words",
    [
        ("seen", "clear", "nowhere", "--yes"),
        ("seen", "forget", "nowhere", "https://a.example/"),
        ("seen", "forget", "all", "not a URL"),
        ("submit", "plain.py", "--seen", "two words"),
        ("submit", "plain.py", "--seen", "all", "--seen-for", "soon"),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(here: LocalFleet, words: tuple[str, ...]) -> None:
    here.scraper()
    assert here.user.shoal("submit", "plain.py", "--seen", "all").code == 0
    done = here.user.shoal(*words)
    assert done.code == 2 and "try:" in done.err, done.err


def test_the_api_names_lists_and_clears_a_set(server: ServerProcess) -> None:
    def submit(*urls: str) -> tuple[int, int]:
        answer = server.post("/api/v1/runs", {"urls": list(urls), "settings": {"seen": "prices", "seen_for": "1d"}})
        assert answer.status_code == 201, answer.text
        return answer.json()["added"], answer.json()["seen"]

    a, b, c = (f"https://a.example/{n}" for n in "abc")
    assert submit(a, b) == (2, 0)
    assert submit(b, c) == (1, 1)
    (listed,) = server.get("/api/v1/seen-sets").json()["items"]
    assert (listed["name"], listed["entries"], listed["seen_for"]) == ("prices", 3, 86_400.0)
    assert server.post("/api/v1/seen-sets/prices/forget", {"urls": [a, "https://x.example/"]}).json()["count"] == 1
    assert server.post("/api/v1/seen-sets/prices/forget", {"urls": ["nonsense"]}).status_code == 422
    assert submit(a, b) == (1, 1)
    assert server.delete("/api/v1/seen-sets/prices").json() == {"name": "prices", "count": 3}
    assert server.get("/api/v1/seen-sets/prices").status_code == 404
    bad = server.post("/api/v1/runs", {"urls": [a], "settings": {"seen": "two words"}})
    assert bad.status_code == 422, bad.text
