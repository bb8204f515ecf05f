"""`shoal shell`: selectors tried on a page, by a person and by a script."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell_user import SHOAL, CommandResult, ShellUser
from wait import HANG

from shoal.cli.main import main


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShellUser]:
    with ShellUser(tmp_path_factory.mktemp("shell")) as user:
        yield user


class Asker:
    """Somebody who types lines into the command, which runs in this very process to save its start."""

    def __init__(self, user: ShellUser, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.user = user
        self._patch = patch
        self._capsys = capsys
        patch.chdir(user.folder)

    def __call__(self, *args: str, typed: str = "") -> CommandResult:
        self._patch.setattr(sys, "stdin", io.StringIO(typed))
        code = main(["shell", *args])
        return CommandResult(code, *self._capsys.readouterr())

    def on_page(self, path: str, *lines: str) -> CommandResult:
        return self(self.user.url.rstrip("/") + path, "--allow-private", typed="\n".join(lines) + "\n")


@pytest.fixture
def ask(user: ShellUser, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Asker:
    for name in [name for name in os.environ if name.startswith("SHOAL_")]:
        monkeypatch.delenv(name)
    return Asker(user, monkeypatch, capsys)


def test_a_page_is_described_before_anything_is_asked(ask: Asker) -> None:
    done = ask.on_page("/")
    assert done.code == 0 and not done.err
    for words in (ask.user.url, "status  200", "type    text/html, utf-8", "title   Welcome", "links   "):
        assert words in done.out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("h1::text", "1 found\n  1  Shoal Books"),
        ("css h1", "<h1>Shoal Books</h1>"),
        ("xpath //h1/text()", "1  Shoal Books"),
        ("xpath count(//h1)", "1  1"),
        ("re <h1>(.*?)</h1>", "1  Shoal Books"),
        ("links", "/catalogue/"),
        ("links footer a", "/robots.txt"),
        ("text", "Shoal Books"),
        ("html h1", "<h1>Shoal Books</h1>"),
        ("headers", "content-type: text/html"),
        ("page", "status  200"),
        ("fetch /catalogue/", "title   Catalogue"),
        ("-f heading=h1", "heading  text      1  Shoal Books"),
        (".nowhere", "nothing found"),
        ("help", "regular expression"),
    ],
)
def test_every_question_has_an_answer(ask: Asker, line: str, words: str) -> None:
    done = ask.on_page("/", line)
    assert done.code == 0, done.err
    assert words in done.out.split("elsewhere\n", 1)[1]


def test_a_table_is_shown_as_one(user: ShellUser, ask: Asker) -> None:
    (user.folder / "table.html").write_text(
        "<table><tr><th>name<th>price</tr><tr><td>tea<td>2.50</tr><tr><td>bun<td>1.00</tr></table>"
    )
    done = ask("table.html", typed="table\ntable .none\n")
    assert done.code == 0, done.err
    assert re.search(r"name +price\ntea +2.50\nbun +1.00\nno table found", done.out)


def test_a_page_of_json_is_asked_with_paths(user: ShellUser, ask: Asker) -> None:
    (user.folder / "data.json").write_text('{"items": [{"name": "tea"}, {"name": "bun"}]}')
    done = ask("data.json", typed="json items[].name\n")
    assert "2 found\n  1  tea\n  2  bun" in done.out


def test_what_is_not_understood_is_said_and_the_next_line_is_answered(ask: Asker) -> None:
    done = ask.on_page("/", "!!", "xpath //[", "re (", "json a", "fetch", "h1::text")
    assert done.code == 2
    assert len(re.findall("^shoal: ", done.err, re.MULTILINE)) == 5
    assert "CSS selector '!!'" in done.err and "is not JSON" in done.err
    assert "1 found\n  1  Shoal Books" in done.out
    assert "Traceback" not in done.err


def test_fields_are_shown_as_a_table_of_what_a_record_would_hold(user: ShellUser, ask: Asker) -> None:
    path = next(path for path in user.site.site.shop.paths() if re.search(r"_1/$", path))
    url = user.url.rstrip("/") + path
    done = ask(
        url, "--allow-private", "-f", "title=h1", "-f", "price:number=h1", "-f", "links[]:url=a", "-f",
        "none=.nowhere",
    )  # fmt: skip
    assert done.code == 0, done.err
    rows = done.out.split("elsewhere\n", 1)[1].splitlines()
    assert [row.split()[0] for row in rows] == ["field", "title", "price", "links", "none"]
    assert "is not a number" in rows[2] and "url list" in rows[3] and rows[4].endswith("0  (nothing)")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ((), 2, "no page given"),
        (("gone.html",), 2, "there is no file gone.html"),
        (("{url}",), 1, "blocked.private"),
        (("{url}", "--allow-private", "-f", "title"), 2, "use NAME=SELECTOR"),
        (("{url}", "--allow-private", "-f", "title=h1::txt"), 2, "h1::txt"),
        (("{url}private/", "--allow-private"), 2, "robots.txt of"),
        (("http://127.0.0.1:9/", "--allow-private", "--ignore-robots"), 1, "connect"),
    ],
)
def test_what_cannot_be_shown_says_why_and_what_to_do(
    user: ShellUser, ask: Asker, args: tuple[str, ...], code: int, words: str
) -> None:
    user.site.hits.clear()
    done = ask(*(arg.format(url=user.url) for arg in args))
    assert done.code == code and words in done.err and "\n  try: " in done.err, done
    assert set(user.site.hits) <= {"/robots.txt"}


def test_an_error_page_is_shown_and_told_by_the_exit_status(ask: Asker) -> None:
    done = ask.on_page("/nowhere", "h1::text")
    assert done.code == 3 and "status  404" in done.out and "Not found" in done.out


def test_what_robots_refuses_is_shown_on_request(user: ShellUser, ask: Asker) -> None:
    done = ask(user.url + "private/", "--allow-private", "--ignore-robots")
    assert "status  200" in done.out, done.err


def test_the_links_of_a_saved_page_lead_from_where_it_was(user: ShellUser, ask: Asker) -> None:
    (user.folder / "saved.html").write_text("<title>kept</title><a href=/x>x</a>")
    done = ask("saved.html", "--url", "https://a.example/b", typed="links\n")
    assert "title   kept" in done.out and "https://a.example/x" in done.out


@pytest.mark.parametrize("word", ["css", "xpath", "re"])
def test_a_question_without_its_object_says_how_it_is_asked(ask: Asker, word: str) -> None:
    done = ask.on_page("/", word)
    assert done.code == 2 and f"{word} needs something to look for\n  try: {word} " in done.err


def test_what_the_shell_understands_fits_a_terminal() -> None:
    from shoal.cli.repl import HELP

    assert max(map(len, HELP.splitlines())) < 80


def test_a_person_at_a_terminal_has_a_prompt_with_a_memory(user: ShellUser, tmp_path: Path) -> None:
    (user.folder / "saved.html").write_text("<title>kept</title><h1>One</h1>")
    shown = ""
    for typed in ("h1::text\r", "\x1b[A\x1b[A\r"):  # the second time: up, past quit, to what was typed before
        master, slave = pty.openpty()
        child = subprocess.Popen(
            [*SHOAL, "shell", "saved.html"],
            cwd=user.folder,
            env=user.environment | {"HOME": str(tmp_path), "TERM": "xterm", "NO_COLOR": "1"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        shown = _read(master, "shoal> ")
        os.write(master, typed.encode())
        shown = _read(master, "shoal> ")
        os.write(master, b"quit\r")
        assert child.wait(HANG) == 0
        os.close(master)
        assert "1 found\r\n  1  One" in shown
    assert "h1::text" in (tmp_path / ".shoal_history").read_text()


def _read(master: int, end: str, seconds: float = HANG) -> str:
    text, limit = "", time.monotonic() + seconds
    while not re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", text).endswith(end):
        assert time.monotonic() < limit, text
        text += os.read(master, 4096).decode()
    return text
