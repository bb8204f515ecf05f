"""Every example is run for real, through `shoal run`, and brings what it says."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rendering import need_browser
from shell_user import ShellUser

from shoal.demo.site import Site

EXAMPLES = Path(__file__).parents[2] / "examples"
MOST_FOLLOWERS = 25
Rows = list[dict[str, Any]]


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path, products=60) as user:
        yield user


def books(site: Site, rows: Rows) -> None:
    """As pairs: two books may have one title."""
    assert sorted((row["title"], row["price"]) for row in rows) == sorted(
        (book["title"], float(book["price"].lstrip("€"))) for book in site.expected_products()
    )


def quotes(site: Site, rows: Rows) -> None:
    key = lambda row: (row["text"], row["author"])  # noqa: E731
    assert sorted(map(key, rows)) == sorted(map(key, site.expected_quotes()))


def profiles(site: Site, rows: Rows) -> None:
    expected = site.expected_profiles()
    assert {row["username"] for row in rows if row["kind"] == "profile"} == {p["username"] for p in expected}
    followers = sum(min(len(person["followers"]), MOST_FOLLOWERS) for person in expected)
    assert sum(row["kind"] == "follower" for row in rows) == followers


def stock(site: Site, rows: Rows) -> None:
    buyable = [book["title"] for book in site.expected_products() if book["stock"].startswith("In stock")]
    assert sorted(row["title"] for row in rows) == sorted(buyable)
    assert all("/catalogue/" in row["listing"] for row in rows)


def prices(site: Site, rows: Rows) -> None:
    expected = [float(book["price"].lstrip("€")) for book in site.expected_products()]
    assert sorted(row["price"] for row in rows) == sorted(expected)


def queues(site: Site, rows: Rows) -> None:
    assert {row["title"] for row in rows} == {book["title"] for book in site.expected_products()}


def browser(site: Site, rows: Rows) -> None:
    assert {row["title"] for row in rows} == {book["title"] for book in site.expected_products()}
    assert all(row["picture"] > 1_000 for row in rows)


# example -> (exit status, what its records must be)
EXPECTED: dict[str, tuple[int, Callable[[Site, Rows], None]]] = {
    "books.py": (0, books),
    "browser.py": (0, browser),
    "prices.py": (0, prices),
    "profiles.py": (0, profiles),
    "queues.py": (0, queues),
    "quotes.py": (0, quotes),
    "stock.py": (3, stock),
}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_brings_what_the_site_has(name: str, user: ShellUser) -> None:
    status, check = EXPECTED[name]
    if name == "browser.py":
        need_browser()
    done = user.shoal("run", str(EXAMPLES / name), "-o", "out.jsonl", "--allow-private", SHOAL_DEMO_URL=user.url)
    assert done.code == status, done.err
    rows = user.lines("out.jsonl")
    check(user.site.site, rows)
    (run,) = user.ask("runs")
    assert run["balanced"] and not run["open"] and run["records"] == len(rows)


def test_the_sold_out_are_dead_letters_with_their_own_cause(user: ShellUser) -> None:
    user.shoal("run", str(EXAMPLES / "stock.py"), "--allow-private", SHOAL_DEMO_URL=user.url)
    (group,) = user.ask("dead", "stock")
    sold_out = [book for book in user.site.site.expected_products() if book["stock"] == "Sold out"]
    assert (group["cause"], group["count"]) == ("sold_out", len(sold_out))


def test_the_queues_of_an_example_have_their_own_priority_and_ttl(user: ShellUser) -> None:
    """Three queues are three rules; the rules travel with the run, and the first that matches wins."""
    done = user.shoal("submit", str(EXAMPLES / "queues.py"), "--allow-private", SHOAL_DEMO_URL=user.url)
    assert done.code == 0, done.err
    for path, expected in (("catalogue/x_1/", (1, 10, 1800.0)), ("catalogue/page-2.html", (2, 0, 3600.0))):
        answer = json.loads(user.shoal("route", user.url + path, "queues", "--json").out)
        assert (answer["rule"], answer["task"]["priority"], answer["task"]["ttl"]) == expected


def test_an_example_writes_a_table_too(user: ShellUser) -> None:
    done = user.shoal("run", str(EXAMPLES / "quotes.py"), "-o", "q.csv", "--allow-private", SHOAL_DEMO_URL=user.url)
    assert done.code == 0, done.err
    with (user.folder / "q.csv").open(newline="", encoding="utf-8") as file:
        quotes(user.site.site, list(csv.DictReader(file)))


def test_the_script_runs_as_a_script(user: ShellUser) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "prices.py")],
        cwd=user.folder,
        env={**user.environment, "SHOAL_DEMO_URL": user.url, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sum(int(line.split(" books,")[0].split()[-1]) for line in done.stdout.splitlines()) == 60


def test_examples_are_self_contained() -> None:
    assert set(EXPECTED) == {path.name for path in EXAMPLES.glob("*.py")}
    for path in EXAMPLES.glob("*.py"):
        text = path.read_text("utf-8")
        assert f"examples/{path.name}" in text, f"{path.name} should say how it is run"
        assert json.dumps(text)
