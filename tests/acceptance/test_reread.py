"""Lists keep their pages: corrected fields read them again, and the same command goes on with other settings."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell_user import ShellUser
from wait import HANG, wait_until

ALLOW = ("--allow-private", "--workers", "1")
ROBOTS = "/robots.txt"


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path, products=30) as user:
        yield user


def products(user: ShellUser) -> list[str]:
    return [user.url.rstrip("/") + path for path in user.site.site.product_paths()]


def listed(user: ShellUser, urls: list[str]) -> str:
    (user.folder / "urls.txt").write_text("".join(f"{url}\n" for url in urls))
    return "urls.txt"


def titles(user: ShellUser, name: str = "out.csv") -> dict[str, str]:
    with (user.folder / name).open(newline="") as file:
        return {row["url"]: row["title"] for row in csv.DictReader(file)}


def requested(user: ShellUser) -> set[str]:
    """Paths that were asked for since the last time."""
    found = {path for path in user.site.hits if path != ROBOTS}
    user.site.hits.clear()
    return found


def test_corrected_fields_read_saved_pages_again_and_fetch_only_the_others(user: ShellUser) -> None:
    urls = products(user)
    first = user.shoal("run", listed(user, urls[:10]), "-f", "title=.nothing", "-o", "out.csv", *ALLOW)
    assert first.code == 3 and "Next: shoal shell" in first.err, first.err
    assert len(requested(user)) == 10 and not any(titles(user).values())
    corrected = ("run", listed(user, urls[:12]), "-f", "title=h1", "-o", "out.csv", *ALLOW)
    offered = user.shoal(*corrected)
    assert offered.code == 2 and "--reread, to read the 10 pages again" in offered.err, offered.err
    again = user.shoal(*corrected, "--reread")
    assert again.code == 0, again.err
    assert "2 pages were not saved; fetching." in again.err
    assert {f"{user.url.rstrip('/')}{path}" for path in requested(user)} == set(urls[10:12])
    assert titles(user).keys() == set(urls[:12]) and all(titles(user).values())
    same = user.shoal(*corrected)
    assert same.code == 0 and "already finished" in same.err, same.err
    # What was read again is there to be read once more, without the runs before.
    other = user.shoal("run", "urls.txt", "-f", "title=title", "-o", "out.csv", "--reread", *ALLOW)
    assert other.code == 0 and not requested(user), other.err
    assert set(titles(user).values()).isdisjoint({""}) and len(titles(user)) == 12


def test_a_run_that_began_to_fetch_goes_on_with_saved_pages(user: ShellUser) -> None:
    urls = products(user)[:10]
    assert user.shoal("run", listed(user, urls), "-o", "out.csv", *ALLOW).code == 0
    requested(user)
    slow = ("run", "urls.txt", "-f", "title=h1", "-o", "other.csv", *ALLOW)
    began = user.start(*slow, "--delay", "3s")
    assert began.stderr is not None
    offer = next(line for line in began.stderr if "This list was read before. Stop, and add --reread" in line)
    assert "10 pages" in offer
    wait_until(lambda: user.site.hits)
    began.terminate()
    assert began.wait(HANG) == 4
    requested(user)
    done = user.shoal(*slow, "--delay", "3s", "--reread")
    assert done.code == 0, done.err
    assert not requested(user) and len(titles(user, "other.csv")) == 10


def test_nothing_is_kept_where_nobody_wants_it_or_with_a_login(user: ShellUser) -> None:
    name = listed(user, products(user)[:3])
    for number, options in enumerate((["--no-keep-raw"], ["--header", "X-Api-Key: mine"])):
        done = user.shoal("run", name, "-o", f"{number}.csv", *options, *ALLOW)
        assert done.code == 0, done.err
    assert "No responses are saved here" in user.shoal("raw", "list").out
    refused = user.shoal("run", name, "-o", "0.csv", "-f", "title=h1", "--no-keep-raw", *ALLOW)
    assert refused.code == 2 and "--reread" not in refused.err


def test_the_same_command_goes_on_when_what_it_failed_for_is_allowed(user: ShellUser) -> None:
    name = listed(user, products(user)[:3])
    command = ("run", name, "-f", "title=h1", "-o", "out.csv", "--workers", "1")
    refused = user.shoal(*command)
    assert refused.code == 3 and "private addresses" in refused.err, refused.err
    done = user.shoal(*command, "--allow-private")
    assert done.code == 0 and "3 pages failed for want of --allow-private" in done.err, done.err
    assert "--allow-private is 1, was none" in done.err and "as fast as the site answers" in done.err
    assert len(titles(user)) == 3
    again = user.shoal(*command, "--allow-private")
    assert again.code == 0 and "already finished" in again.err, again.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "books.py", "-o", "out.csv", "--reread"), "--reread is for lists"),
        (("run", "urls.txt", "-o", "out.csv", "--reread", "--from-raw", "x"), "exclude each other"),
    ],
)
def test_rereading_what_cannot_be_reread_is_refused(user: ShellUser, words: tuple[str, ...], said: str) -> None:
    user.write("import shoal\n\nbooks = shoal.Scraper('books', start='https://a.example/')\n")
    listed(user, products(user)[:1])
    done = user.shoal(*words)
    assert done.code == 2 and said in done.err, done.err
