"""shoal.run and shoal.run_sync: in somebody's own process, any number of times."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from shell_user import ShellUser

import shoal
from shoal.demo.server import Server
from shoal.errors import UsageError


def shop(url: str) -> shoal.Scraper:
    books = shoal.Scraper("books", start=url)

    @books.page("/catalogue/*_*/")
    def book(page: shoal.Page):
        yield {"title": page.css("h1::text").get(), "url": page.url}

    @books.page("/catalogue/*")
    async def listing(page: shoal.Page):
        for follow in page.follow(".next a, .product a"):
            yield follow

    return books


async def test_a_run_gives_every_record_once(demo: Server, clean_folder: Path) -> None:
    result = await shoal.run(shop(demo.url), allow_private="1")
    titles = sorted(record["title"] for record in result)
    assert titles == sorted(product["title"] for product in demo.site.expected_products())
    assert result.complete and len(result) == 200 and result.stats.is_balanced
    assert all(demo.hits[path] == 1 for path in demo.site.product_paths())


async def test_it_works_twice_in_the_same_process_and_fetches_anew(demo: Server, clean_folder: Path) -> None:
    first = await shoal.run(shop(demo.url), allow_private="1")
    second = await shoal.run(shop(demo.url), allow_private="1")
    assert first.run != second.run
    assert len(list(first)) == len(list(second)) == 200


async def test_a_finished_run_can_be_asked_for_without_fetching(demo: Server, clean_folder: Path) -> None:
    await shoal.run(shop(demo.url), allow_private="1")
    demo.hits.clear()
    again = await shoal.run(shop(demo.url), allow_private="1", fresh=False)
    assert len(list(again)) == 200 and not demo.hits


async def test_a_cancelled_run_goes_on_where_it_stopped(demo: Server, clean_folder: Path) -> None:
    demo.site.host_delay = 0.01
    running = asyncio.create_task(shoal.run(shop(demo.url), allow_private="1", concurrency=4))
    while sum(demo.hits.values()) < 60 and not running.done():
        await asyncio.sleep(0.005)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    result = await shoal.run(shop(demo.url), allow_private="1", concurrency=4)
    assert sorted(r["title"] for r in result) == sorted(p["title"] for p in demo.site.expected_products())
    assert sum(demo.hits[path] - 1 for path in demo.site.product_paths()) <= 4


async def test_it_starts_no_process_and_leaves_signals_alone(demo: Server, clean_folder: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    before = set(children.read_text().split()) if children.exists() else set()  # servers of other tests
    await shoal.run(shop(demo.url), allow_private="1")
    assert signal.getsignal(signal.SIGINT) is handler
    assert not children.exists() or set(children.read_text().split()) <= before


async def test_records_are_written_to_a_file_on_request(demo: Server, clean_folder: Path) -> None:
    await shoal.run(shop(demo.url), allow_private="1", output="books.jsonl")
    lines = [json.loads(line) for line in Path("books.jsonl").read_text().splitlines()]
    assert len({line["url"] for line in lines}) == len(lines) == 200


async def test_private_addresses_are_refused_unless_allowed(demo: Server, clean_folder: Path) -> None:
    with pytest.raises(shoal.ShoalError, match="private network") as error:
        await shoal.run(shop(demo.url))
    assert "allow_private=True" in error.value.hint
    assert not demo.hits


async def test_a_setting_that_does_not_exist_is_a_usage_error(demo: Server, clean_folder: Path) -> None:
    with pytest.raises(shoal.ShoalError, match="unknown setting"):
        await shoal.run(shop(demo.url), concurency=3)


def test_run_sync_is_for_plain_scripts(clean_folder: Path) -> None:
    script = clean_folder / "script.py"
    script.write_text(
        """
import asyncio, threading, shoal
from shoal.demo.server import serve
from shoal.demo.site import Site

ready = threading.Event()
async def site():
    global url
    async with await serve(Site(products=20)) as server:
        url = server.url
        ready.set()
        await asyncio.sleep(60)
threading.Thread(target=lambda: asyncio.run(site()), daemon=True).start()
ready.wait()
books = shoal.Scraper("books", start=url)
@books.page("/catalogue/*_*/")
def book(page):
    return {"title": page.css("h1::text").get()}
@books.page("/catalogue/*")
def listing(page):
    return page.follow(".next a, .product a")
for _ in range(2):
    print(len(list(shoal.run_sync(books, allow_private="1"))))
"""
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("20\n20\n", 0), done.stderr


FIELDS = {"title": "h1::text", "price:price": ".price"}


def test_get_brings_a_list_as_records_and_says_what_failed(clean_folder: Path) -> None:
    with ShellUser(clean_folder, products=3) as user:  # in a thread of its own, as this one waits
        good = [user.url.rstrip("/") + path for path in user.site.site.product_paths()]
        for _ in range(2):  # a script is run again and again
            result = shoal.get([*good, user.url + "nowhere", "nonsense"], FIELDS, allow_private="1")
            assert sorted(record["url"] for record in result) == sorted(good)
            assert [(row["line"], row["cause"]) for row in result.failed] == [(4, "http.404")]
            assert not result.complete and list(result.to_pandas().columns) == ["url", "title", "price"]
        assert all(user.site.hits[path] == 2 for path in user.site.site.product_paths())


async def test_get_works_where_an_event_loop_runs_already(clean_folder: Path) -> None:
    with ShellUser(clean_folder, products=1) as user:
        address = user.url.rstrip("/") + user.site.site.product_paths()[0]
        for _ in range(2):
            (record,) = shoal.get(address, FIELDS, allow_private="1", output="one.csv")
            assert record["url"] == address
    assert len((clean_folder / "one.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("target", "fields", "words"),
    [
        ([], {}, "no URL to get"),
        ("", {}, "no URL to get"),
        (["one.txt", "two.txt"], {}, "a list takes no further arguments"),
        (["t.yaml", "one.txt", "two.txt"], {}, "a template takes one list"),
        ("t.yaml", {"title": "h1"}, "defines its own fields"),
        ("one.txt", {"title": "h1["}, "CSS selector"),
        ("none.txt", {}, "no file none.txt"),
    ],
)
def test_get_refuses_what_it_would_otherwise_leave_out(
    clean_folder: Path, target: str | list[str], fields: dict[str, str], words: str
) -> None:
    for name in ("one.txt", "two.txt", "t.yaml"):
        (clean_folder / name).write_text("https://a.example/\n")
    with pytest.raises(UsageError, match=words) as caught:
        shoal.get(target, fields)
    assert caught.value.hint and not (clean_folder / ".shoal" / "shoal.db").exists()


async def test_run_sync_where_an_event_loop_runs_says_what_to_do(clean_folder: Path) -> None:
    with pytest.raises(UsageError, match="an event loop is running already") as caught:
        shoal.run_sync(shoal.Scraper("books", start="http://127.0.0.1:1/"))
    assert "await shoal.run" in caught.value.hint


def test_an_empty_result_has_its_columns(clean_folder: Path) -> None:
    with ShellUser(clean_folder, products=1) as user:
        result = shoal.get(user.url + "nowhere", FIELDS, allow_private="1", output="none.csv")
    assert len(result) == 0
    names = ["url", "title", "price"]
    assert list(result.to_pandas().columns) == names == result.to_polars().columns == result.to_arrow().column_names
    assert (clean_folder / "none.csv").read_text() == "url,title,price\n"
    result.write("again.tsv")
    assert (clean_folder / "again.tsv").read_text() == "url\ttitle\tprice\n"


async def test_a_run_shows_its_progress_if_asked_and_leaves_logging_alone(
    demo: Server, clean_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    await shoal.run(shop(demo.url), allow_private="1")
    assert capfd.readouterr().err == "", "nobody looks at it"
    await shoal.run(shop(demo.url), allow_private="1", progress=True)
    lines = capfd.readouterr().err.splitlines()
    assert " pages · " in lines[-1] and "records" in lines[-1]
    assert (root.level, list(root.handlers)) == before
