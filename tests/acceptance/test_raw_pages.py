"""`--keep-raw` and `--from-raw`: a site that is gone gives the same records again, whatever was killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shell_user import BOOKS_SCRAPER, ShellUser
from wait import HANG, wait_until

from shoal.core.url import request_digest
from shoal.demo.messages import SiteResponse
from shoal.store.raw.page_store import RawPageStore

KEEP = ("run", "books.py", "-o", "books.jsonl", "--allow-private", "--keep-raw", "--workers", "2")
RAW_FOLDER = Path(".shoal", "raw")


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path, products=60) as user:
        user.write(BOOKS_SCRAPER)
        yield user


def name_of_run(user: ShellUser) -> str:
    name: str = user.ask("runs")[0]["name"]
    return name


def lines(user: ShellUser, name: str) -> Counter[str]:
    return Counter((user.folder / name).read_text().splitlines())


def kept(user: ShellUser, run: str) -> dict[bytes, Any]:
    store = RawPageStore(user.folder / RAW_FOLDER)
    try:
        return {page.digest: page.response for page in store.pages(run)}
    finally:
        store.close()


def take_away_the_site(user: ShellUser) -> None:
    user._site_thread.close()
    user._site_thread.close = lambda: None  # type: ignore[method-assign]


def again(user: ShellUser, run: str, output: str = "again.jsonl") -> Any:
    return user.shoal("run", "books.py", "-o", output, "--allow-private", "--from-raw", run)


def test_kept_pages_give_the_same_records_and_others_to_changed_code_when_the_site_is_gone(user: ShellUser) -> None:
    done = user.shoal(*KEEP)
    assert done.code == 0, done.err
    run = name_of_run(user)
    take_away_the_site(user)
    done = again(user, run[:4].lower())
    assert done.code == 0, done.err
    assert lines(user, "again.jsonl") == lines(user, "books.jsonl")
    assert len(user.lines("again.jsonl")) == len(user.catalogue())
    user.write(BOOKS_SCRAPER.replace('page.css("h1::text").get()', 'page.css("title::text").get()'))
    done = again(user, run, "titles.jsonl")
    assert done.code == 0, done.err
    old, new = user.lines(), user.lines("titles.jsonl")
    assert {line["url"] for line in old} == {line["url"] for line in new}
    assert {line["title"] for line in old}.isdisjoint({line["title"] for line in new} | {None})


def test_every_page_that_was_settled_is_kept_whatever_is_killed(tmp_path: Path) -> None:
    with ShellUser(tmp_path, products=120, host_delay=0.02) as user:
        user.write(BOOKS_SCRAPER)
        command = user.start(*KEEP, "--concurrency", "4")
        wait_until(lambda: user.requests >= 60)
        os.killpg(command.pid, signal.SIGKILL)
        command.wait(HANG)
        settled = user.shoal("export", "-o", "settled.jsonl")
        assert settled.code == 0, settled.err
        run = name_of_run(user)
        early = {request_digest(line["url"]) for line in user.lines("settled.jsonl")}
        assert 20 < len(early) < 120
        assert early <= kept(user, run).keys()
        done = user.shoal(*KEEP)
        assert done.code == 0 and "Continuing run" in done.err, done.err
        assert {request_digest(url) for url in user.catalogue()} <= kept(user, run).keys()
        take_away_the_site(user)
        assert again(user, run).code == 0
        assert lines(user, "again.jsonl") == lines(user, "books.jsonl")


def test_a_run_that_kept_nothing_is_named(user: ShellUser) -> None:
    done = again(user, "ZZZZ")
    assert done.code == 2 and "ZZZZ" in done.err, done.err


def test_a_second_crawl_transfers_only_what_has_changed(user: ShellUser) -> None:
    sent = Counter[int]()
    answer = user.site.answer

    def counting(request: Any) -> SiteResponse:
        given = answer(request)
        sent[given.status] += len(given.body)
        return given

    user.site.answer = counting  # type: ignore[method-assign]
    assert user.shoal(*KEEP, "--revalidate").code == 0
    first = sent[200]
    first_run, before = name_of_run(user), lines(user, "books.jsonl")
    sent.clear()
    done = user.shoal(*KEEP, "--revalidate", "--fresh")
    assert done.code == 0, done.err
    assert sent[200] * 10 < first and 304 in sent
    assert lines(user, "books.jsonl") == before
    second_run = name_of_run(user)
    assert second_run != first_run
    pages = {request_digest(url) for url in user.catalogue()}
    assert pages <= kept(user, first_run).keys() & kept(user, second_run).keys()
