"""`shoal run` and the commands around it, as processes, on the demo site."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell_user import BOOKS_SCRAPER, ShellUser
from wait import HANG, wait_until

from shoal.cli.main import COMMANDS, main

RUN = ("run", "books.py", "-o", "books.jsonl", "--allow-private", "--workers", "1")


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path) as user:
        user.write(BOOKS_SCRAPER)
        yield user


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShellUser]:
    """A user whose run ended well a moment ago."""
    with ShellUser(tmp_path_factory.mktemp("finished")) as user:
        user.write(BOOKS_SCRAPER)
        done = user.shoal(*RUN)
        assert done.code == 0, done.err
        user.site.hits.clear()
        yield user


def start_at(user: ShellUser, *paths: str, settings: str = "", name: str = "books.py") -> None:
    """A scraper that starts at these addresses and keeps the address of every page it sees."""
    addresses = ", ".join(repr(user.url.rstrip("/") + path) for path in paths)
    (user.folder / name).write_text(
        f"""
import shoal

odd = shoal.Scraper("odd", start=[{addresses}]{settings})

@odd.page()
def page(page):
    yield {{"url": page.url, "path": page.url.partition("//")[2].partition("/")[2]}}
    yield from page.follow("a")
"""
    )


# The main job


def test_a_scraper_of_six_lines_brings_every_record_once(tmp_path: Path) -> None:
    with ShellUser(tmp_path, products=100) as user:
        user.write(BOOKS_SCRAPER)
        done = user.shoal("run", "books.py", "-o", "books.jsonl", "--allow-private")
        assert (done.code, done.out) == (0, "")
        assert sorted(line["url"] for line in user.lines()) == user.catalogue()
        assert {user.site.hits[url.removeprefix(user.url.rstrip("/"))] for url in user.catalogue()} == {1}
        pages = len(user.catalogue()) + 1
        assert f"seen {pages} = done {pages} + dead 0 + cancelled 0 + open 0" in done.err


def test_a_finished_run_says_so_and_fetches_nothing(finished: ShellUser) -> None:
    before = (finished.folder / "books.jsonl").read_bytes()
    again = finished.shoal(*RUN)
    assert again.code == 0 and "already finished" in again.err and "--fresh" in again.err
    assert not finished.site.hits and (finished.folder / "books.jsonl").read_bytes() == before


def test_an_output_that_was_deleted_is_written_again_without_fetching(finished: ShellUser) -> None:
    before = (finished.folder / "books.jsonl").read_bytes()
    (finished.folder / "books.jsonl").unlink()
    assert finished.shoal(*RUN).code == 0
    assert not finished.site.hits and (finished.folder / "books.jsonl").read_bytes() == before


def test_an_output_of_something_else_is_refused_and_left_alone(user: ShellUser) -> None:
    precious = user.folder / "books.jsonl"
    precious.write_text("precious\n")
    done = user.shoal(*RUN)
    assert done.code == 2 and "was not written by this run" in done.err and "--fresh" in done.err
    assert precious.read_text() == "precious\n" and not user.site.hits
    assert user.ask("runs") == []


def test_the_page_limit_is_a_complete_run_and_the_rest_is_cancelled(user: ShellUser) -> None:
    done = user.shoal(*RUN, "--max-pages", "5")
    assert done.code == 0, done.err
    (run,) = user.ask("runs")
    assert (run["done"], run["open"], run["dead"]) == (5, 0, 0) and run["cancelled"] > 0
    account = f"seen {run['seen']} = done 5 + dead 0 + cancelled {run['cancelled']} + open 0"
    assert account in done.err and "its limit of 5 pages ended it" in done.err
    assert user.requests <= 5 + 16 + 1  # what was under way, and robots.txt
    again = user.shoal(*RUN, "--max-pages", "5")
    assert again.code == 0 and "its limit of 5 pages ended it" in again.err and "--fresh" in again.err
    more = user.shoal(*RUN, "--max-pages", "8")
    assert more.code == 0, more.err
    (on,) = user.ask("runs")
    assert (on["name"], on["done"], on["open"], on["max_pages"]) == (run["name"], 8, 0, 8)


def test_links_are_followed_so_far_and_no_farther(user: ShellUser) -> None:
    run = ("run", "books.py", "--allow-private", "--workers", "1")
    none = user.start(*run, "-o", "none.jsonl", "--max-depth", "0")
    one = user.start(*run, "-o", "one.jsonl", "--max-depth", "1")
    assert (none.wait(HANG), one.wait(HANG)) == (3, 0)  # the start page alone gives no record
    pages = {run["done"]: run for run in user.ask("runs")}
    assert set(pages) == {1, 1 + 1 + 8}  # the start, and what it links to: the catalogue and eight books
    assert all(run["seen"] == run["done"] and run["skipped"]["depth"] > 0 for run in pages.values())


def test_the_summary_for_programs_is_one_json_document_on_stdout(user: ShellUser) -> None:
    done = user.shoal(*RUN, "--max-pages", "5", "--json")
    assert done.code == 0 and "Done after" in done.err
    found = done.json
    (run,) = user.ask("runs")
    assert {name: found[name] for name in run} == run
    assert (found["end"], found["cause"], found["output"]) == ("complete", None, "books.jsonl")
    assert [(file["name"], file["rows"]) for file in found["files"]] == [("books.jsonl", found["records"])]
    (user.folder / "shop.py").write_text(FINDS_NOTHING.format(url=user.url, pattern="/products/*"))
    empty = user.shoal("run", "shop.py", "-o", "shop.csv", "--allow-private", "--json")
    assert empty.code == 3 and (empty.json["end"], empty.json["cause"]) == ("no_records", "no_records")
    assert empty.json["no_records"]["patterns"] == ["/products/*"]
    queued = user.shoal("run", "shop.py", "--mode", "distributed", "--json")
    assert queued.code == 0 and queued.json["status"] == "submitted"
    refused = user.shoal("run", "gone.py", "--json")
    assert refused.code == 2 and not refused.out


# What finds nothing

FINDS_NOTHING = """
import shoal

shop = shoal.Scraper("shop", start="{url}")

@shop.page("{pattern}")
def item(page):
    for card in page.css(".no-such-card"):
        yield {{"title": card.css("h1::text").get()}}
    yield from page.follow("a.no-such-next")
"""


def test_a_crawl_whose_patterns_match_nothing_says_which_links_and_exits_3(user: ShellUser) -> None:
    (user.folder / "shop.py").write_text(FINDS_NOTHING.format(url=user.url, pattern="/products/*"))
    done = user.shoal("run", "shop.py", "-o", "shop.csv", "--allow-private")
    assert done.code == 3, done.err
    assert "No records: 1 page was fetched" in done.err and "handlers are for /products/*" in done.err
    assert f"    {user.url}catalogue/\n" in done.err
    assert f"shoal shell {user.url} --allow-private" in done.err
    again = user.shoal("run", "shop.py", "-o", "shop.csv", "--allow-private")
    assert again.code == 3 and "No records" in again.err
    found = user.ask("status")
    assert found["cause"] == "no_records" and found["no_records"]["unhandled"] == found["skipped"]["no_handler"] > 3
    assert "no pattern of the scraper matches it" in user.ask("why", f"{user.url}catalogue/")["reason"]
    # Nobody waits for its records: it says so all the same.
    without = user.shoal("run", "shop.py", "--allow-private")
    assert without.code == 0 and "No records" in without.err
    assert user.ask("status")["cause"] is None


def test_a_crawl_whose_selectors_find_nothing_names_them(user: ShellUser) -> None:
    (user.folder / "shop.py").write_text(FINDS_NOTHING.format(url=user.url, pattern="/"))
    (user.folder / "shop.yaml").write_text(
        f"name: shop\nstart: {user.url}quotes/\nmatch: /quotes/*\n"
        "each: .remark\nfields: {text: .text}\npaging: .next a\n"
    )
    code = user.shoal("run", "shop.py", "-o", "shop.csv", "--allow-private")
    template = user.shoal("run", "shop.yaml", "--allow-private")
    assert (code.code, template.code) == (3, 3)
    for words in ("  .no-such-card found nothing on 1 page\n", "  a.no-such-next found nothing on 1 page\n"):
        assert words in code.err
    pages = user.ask("status")["done"]
    assert pages > 1 and f"  .remark found nothing on {pages} pages\n" in template.err
    assert ".next a" not in template.err


# What goes wrong with pages


def test_dead_letters_are_told_listed_and_revived_and_the_same_command_goes_on(user: ShellUser) -> None:
    start_at(user, "/gone/1", "/forbidden/1", "/catalogue/")
    command = (*RUN, "--max-depth", "0")
    done = user.shoal(*command)
    assert done.code == 3 and "1 × http.404" in done.err and "1 × http.403" in done.err
    (run,) = user.ask("runs")
    assert f"shoal revive {run['name']} --all" in done.err
    assert {group["cause"] for group in user.ask("dead")} == {"http.404", "http.403"}

    again = user.shoal(*command)
    assert again.code == 3 and "already" in again.err

    assert user.ask("revive", "--where", "cause=http.404") == {"run": run["name"], "revived": 1}
    goes_on = user.shoal(*command)
    assert goes_on.code == 3 and "Continuing" in goes_on.err, goes_on.err
    hits = dict(user.site.hits)
    assert (hits["/gone/1"], hits["/forbidden/1"], hits["/catalogue/"]) == (2, 1, 1)


def test_a_private_address_is_refused_with_the_way_out(user: ShellUser) -> None:
    done = user.shoal("run", "books.py", "-o", "books.jsonl")
    assert done.code == 2 and "--allow-private" in done.err and not user.site.hits
    assert "Traceback" not in done.err and not (user.folder / "books.jsonl").exists()


def test_a_private_address_among_others_is_dead_with_the_way_out(user: ShellUser) -> None:
    start_at(user, "/", settings=', hosts="127.0.0.2"')
    text = (user.folder / "books.py").read_text()
    (user.folder / "books.py").write_text(text.replace("start=[", 'start=["http://127.0.0.2:9/", '))
    place = user.url.partition("//")[2].rstrip("/")
    done = user.shoal("run", "books.py", "--max-depth", "0", "--allow-private", place, "--workers", "1")
    assert done.code == 3 and "--allow-private" in done.err and user.site.hits["/"] == 1
    assert "--allow-private" in user.shoal("dead").out


def test_robots_txt_is_obeyed_and_a_fresh_start_may_ignore_it(user: ShellUser) -> None:
    start_at(user, "/catalogue/", "/private/")
    done = user.shoal(*RUN, "--max-depth", "0")
    assert done.code == 3 and "robots" in done.err
    assert not user.site.hits["/private/"] and user.site.hits["/robots.txt"] == 1
    why = user.ask("why", user.url + "private/")
    assert (why["state"], why["cause"]) == ("dead", "robots")
    assert user.shoal(*RUN, "--max-depth", "0", "--fresh", "--ignore-robots").code == 0
    assert user.site.hits["/private/"] == 1 and user.site.hits["/robots.txt"] == 1
    assert user.site.hits["/catalogue/"] == 2 and len(user.lines()) == 2
    assert [run["dead"] for run in user.ask("runs")] == [0, 1]


def test_a_link_that_a_rule_refuses_is_counted_and_explained(user: ShellUser) -> None:
    start_at(user, "/odd/")
    done = user.shoal(*RUN, "--max-depth", "0")
    assert done.code == 0 and "links not followed: " in done.err and "\x1b" not in done.err
    why = user.ask("why", user.url + "trap/calendar/2026/01")
    assert why["state"] == "unknown" and why["skipped"][0] in ("robots", "depth")
    unknown = user.shoal("why", user.url + "never/heard/of")
    assert unknown.code == 2 and "never seen" in unknown.out


BAD = """
import asyncio, os, sys, time
import shoal

KINDS = "block loop exit system memory raise fine1 fine2 fine3 fine4 fine5 fine6".split()
bad = shoal.Scraper("bad", start=["{url}echo?kind=" + kind for kind in KINDS], retries=0)

@bad.page("*=block")
def block(page):
    time.sleep(60)

@bad.page("*=loop")
async def loop(page):
    while True:
        pass

@bad.page("*=exit")
def leave(page):
    os._exit(0)

@bad.page("*=system")
def system(page):
    sys.exit("enough")

@bad.page("*=memory")
def memory(page):
    hoard = []
    while True:
        hoard.append(bytearray(4_000_000))

@bad.page("*=raise")
def wrong(page):
    raise KeyError("price")

@bad.page()
async def fine(page):
    await asyncio.sleep(0.2)
    yield {{"url": page.url}}
"""


def test_a_handler_harms_its_own_page_only(user: ShellUser) -> None:
    user.write(BAD)
    command = ("run", "books.py", "-o", "books.jsonl", "--allow-private", "--workers", "2")
    done = user.shoal(*command, "--handler-timeout", "4", "--worker-memory", "200MB")
    assert done.code == 3, done.err
    letters = user.ask("dead", "--list")
    assert {letter["url"].rpartition("=")[2]: letter["cause"] for letter in letters} == {
        "block": "handler_timeout",
        "loop": "handler_timeout",
        "exit": "worker_lost",
        "system": "handler.SystemExit",
        "memory": "memory",
        "raise": "handler.KeyError",
    }
    assert sorted(line["url"].rpartition("=")[2] for line in user.lines()) == [f"fine{n}" for n in range(1, 7)]
    assert "Traceback" not in done.err


# Pace


def test_the_asked_pace_holds_over_all_workers(user: ShellUser) -> None:
    pace = ("--delay", "0.5", "--max-pages", "5")
    done = user.shoal("run", "books.py", "--allow-private", "--workers", "2", *pace)
    assert done.code == 0 and "at most 2 pages/s per site" in done.err
    times = [at for at, _ in user.site.log]
    # The first may come late, by one turn at the most; two who do not know of each other take half the time.
    assert len(times) >= 5 and times[-1] - times[0] >= 0.5 * (len(times) - 2), times


def test_retry_after_moves_the_whole_host(user: ShellUser) -> None:
    start_at(user, "/echo?n=1", "/busy/1", "/echo?n=2", "/echo?n=3")
    done = user.shoal(*RUN, "--max-depth", "0", "--in-flight", "1", "--retries", "0")
    assert done.code == 3 and "1 × http.429" in done.err
    targets = [target for _, target in user.site.log]
    times = [at for at, _ in user.site.log]
    refused = targets.index("/busy/1")
    assert len(targets) == 5 and refused < 4, targets
    assert times[refused + 1] - times[refused] > 0.95


# Settings


def test_flag_wins_over_variable_over_file_over_scraper(user: ShellUser) -> None:
    start_at(user, "/echo", settings=', user_agent="scraper/1", max_depth=0')
    text = (user.folder / "books.py").read_text()
    (user.folder / "books.py").write_text(
        text.replace('{"url": page.url, ', '{"agent": page.json()["headers"]["user-agent"], ')
    )
    command = ("run", "books.py", "--allow-private", "--workers", "1", "-o")
    variable = {"SHOAL_USER_AGENT": "variable/1"}
    assert user.shoal(*command, "scraper.jsonl").code == 0
    (user.folder / "shoal.toml").write_text('user_agent = "file/1"\n')
    at_once = [
        user.start(*command, "file.jsonl"),
        user.start(*command, "variable.jsonl", **variable),
        user.start(*command, "flag.jsonl", "--user-agent", "flag/1", **variable),
    ]
    assert [one.wait(HANG) for one in at_once] == [0, 0, 0]
    for name in ("scraper", "file", "variable", "flag"):
        assert [line["agent"] for line in user.lines(f"{name}.jsonl")] == [f"{name}/1"]


# Wrong usage

WRONG: dict[str, tuple[str, tuple[str, ...], str]] = {
    "no scraper file": ("", ("run", "missing.py"), "no file missing.py"),
    "no arguments": ("", ("run",), "shoal new books.py"),
    "further inputs": ("", ("run", "s.py", "more.py"), "start=[…]"),
    "syntax error": ("import shoal\ndef (:\n", ("run", "s.py"), "line 2"),
    "exception": ("import shoal\n1 / 0\n", ("run", "s.py"), "ZeroDivisionError: division by zero, line 2"),
    "exits": ("import sys\nsys.exit(7)\n", ("run", "s.py"), "SystemExit"),
    "no scraper": ("x = 1\n", ("run", "s.py"), "has no scraper"),
    "two scrapers": ("import shoal\na = shoal.Scraper('a')\nb = shoal.Scraper('b')\n", ("run", "s.py"), "s.py:a"),
    "unknown scraper": ("import shoal\na = shoal.Scraper('a')\n", ("run", "s.py:b"), "no scraper called b"),
    "no start URL": ("import shoal\na = shoal.Scraper('a')\n", ("run", "s.py"), "no start URL"),
    "bad start address": (
        "import shoal\na = shoal.Scraper('a', 'ftp://files.example/')\n",
        ("run", "s.py"),
        "ftp://files.example/",
    ),
    "unknown setting": (
        "import shoal\na = shoal.Scraper('a', 'http://a.example/', dealy=2)\n",
        ("run", "s.py"),
        "did you mean delay?",
    ),
    "unknown flag": ("", ("run", "s.py", "--max-page", "3"), "--max-pages"),
    "bad value": ("", ("run", "s.py", "--delay", "soon"), "--delay: 'soon'"),
    "half a field": ("", ("run", "urls.txt", "-f", "title"), "use NAME=SELECTOR"),
    "the input as output": ("", ("run", "urls.csv", "-o", "urls.csv"), "is the input"),
    "a folder": ("", ("run", "."), ". is a folder without saved pages"),
    "nowhere to write": ("", ("run", "s.py", "-o", ""), "no file name"),
    "standard output": ("", ("run", "s.py", "-o", "-"), "shoal export -o -"),
    "no such folder": ("", ("run", "s.py", "-o", "nowhere/b.jsonl"), "no folder"),
    "unknown kind of output": ("", ("run", "s.py", "-o", "b.doc"), ".csv"),
    "fields of a scraper": ("", ("run", "s.py", "-f", "a=b"), "-f is for lists"),
    "unknown queue": (
        "import shoal\na = shoal.Scraper('a', 'http://a.example/')\n",
        ("run", "s.py", "--queue", "mysql://db/x"),
        "mysql://",
    ),
}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """All wrong commands at once, each in a folder of its own."""
    with ShellUser(tmp_path_factory.mktemp("wrong")) as user:
        started = {}
        for case, (text, args, _) in WRONG.items():
            folder = user.folder / case
            folder.mkdir()
            (folder / "s.py").write_text(text or "import shoal\n")
            (folder / "urls.txt").write_text("http://a.example/\n")
            (folder / "urls.csv").write_text("url\nhttp://a.example/\n")
            started[case] = user.start(*args, folder=folder)
        yield started


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_exits_2_with_what_is_wrong_and_what_to_do(
    case: str, wrong: dict[str, subprocess.Popen[str]]
) -> None:
    out, err = wrong[case].communicate(timeout=HANG)
    assert wrong[case].returncode == 2 and WRONG[case][2] in err, err
    what, private_hint, *more = err.splitlines()
    assert what.startswith("shoal: ") and private_hint.startswith("  try: ") and not more and not out


@pytest.mark.skipif(os.geteuid() == 0 and sys.platform != "linux", reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused_and_no_run_is_left_behind(user: ShellUser) -> None:
    (user.folder / "locked").mkdir(mode=0o555)
    folder = "/proc" if os.geteuid() == 0 else "locked"
    done = user.shoal("run", "books.py", "-o", f"{folder}/b.jsonl", "--allow-private")
    assert done.code == 2 and "cannot be written" in done.err and not user.site.hits
    assert user.ask("runs") == []


def test_files_beside_the_scraper_do_not_stand_in_for_modules_of_python(user: ShellUser) -> None:
    for name in ("json", "shoal", "uvloop", "select", "queue", "csv"):
        (user.folder / f"{name}.py").write_text("raise RuntimeError('not me')\n")
    elsewhere = user.folder / "scrapers"
    elsewhere.mkdir()
    (user.folder / "books.py").rename(elsewhere / "books.py")
    script = shutil.which("shoal", path=str(Path(sys.executable).parent))
    assert script is not None
    done = subprocess.run(
        [script, "run", "scrapers/books.py", "--allow-private", "--workers", "1"],
        cwd=user.folder,
        env=user.environment,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0 and "shoal export" in done.stderr, done.stderr


# Looking at a run and steering it from outside


def test_every_listing_as_json_is_one_document(finished: ShellUser) -> None:
    page = finished.catalogue()[3]
    asked = [("runs",), ("status",), ("dead",), ("dead", "--list"), ("why", page), ("doctor",)]
    commands = [finished.start(*words, "--json") for words in asked]
    (run,), status, groups, letters, why, doctor = [
        json.loads(command.communicate(timeout=HANG)[0]) for command in commands
    ]
    assert (run["state"], run["records"], run["balanced"]) == ("finished", len(finished.catalogue()), True)
    assert status["name"] == run["name"] and groups == letters == [] and doctor["ok"] is True
    assert why["state"] == "done" and why["attempts"][0]["status"] == 200 and why["found_by"]


def test_every_command_answers_help_within_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        out = capsys.readouterr().out
        assert "Examples:" in out and max(map(len, out.splitlines())) <= 80, name


def test_a_late_column_is_in_every_row_of_a_table(user: ShellUser) -> None:
    late = '"url": page.url, **({{"late": 1}} if "_7/" in page.url else {{}})'
    user.write(BOOKS_SCRAPER.replace('"url": page.url', late))
    done = user.shoal("run", "books.py", "-o", "books.csv", "--allow-private", "--workers", "1")
    assert done.code == 0, done.err
    with (user.folder / "books.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["title", "url", "late"]
    assert {len(row) for row in rows} == {3} and sorted(row[1] for row in rows) == user.catalogue()
    assert [row[2] for row in rows if row[2]] == ["1"]


def test_a_run_is_watched_exported_paused_resumed_and_cancelled_while_it_goes_on(user: ShellUser) -> None:
    user.site.site.host_delay = 0.4
    command = user.start(*RUN, "--concurrency", "1")
    wait_until(lambda: user.requests > 4)
    user.site.site.host_delay = 3.0  # so that it is not over before all is tried
    busy = user.start(*RUN)
    status = user.ask("status")
    assert status["state"] == "running" and status["workers"] and status["open"] > 0

    exported = user.shoal("export", "-o", "-").out
    assert exported.endswith("\n") and all(json.loads(line) for line in exported.splitlines())

    assert user.ask("pause")["state"] == "paused"
    wait_until(lambda: user.ask("status")["leased"] == 0)
    before = user.requests
    status = user.shoal("status").out
    assert "paused" in status and "shoal resume" in status
    assert user.requests == before and command.poll() is None

    assert user.ask("resume")["state"] == "running"
    wait_until(lambda: user.requests > before)
    assert busy.wait(HANG) == 2 and "another process" in busy.stderr.read()  # type: ignore[union-attr]

    assert user.ask("cancel")["state"] == "cancelled"
    _, err = command.communicate(timeout=HANG)
    assert command.returncode == 3 and "Cancelled" in err
    (run,) = user.ask("runs")
    assert run["open"] == 0 and run["cancelled"] > 0 and run["balanced"]
    assert len(user.lines()) == run["records"]
