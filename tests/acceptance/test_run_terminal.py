"""`shoal run` on a terminal, as people see it."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from shell_user import BOOKS_SCRAPER, SHOAL, ShellUser
from wait import HANG

RUN = ("run", "books.py", "-o", "books.jsonl", "--allow-private", "--workers", "1", "--concurrency", "2")
# Takes the terminal on its standard input for its own, as a login shell does, and becomes the command.
TAKE = "import fcntl, os, sys, termios as t; fcntl.ioctl(0, t.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Terminal:
    """A terminal of so many columns with one command in it."""

    def __init__(self, user: ShellUser, columns: int, *args: str) -> None:
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # what is read may end within a character
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE, *SHOAL, *args],
            cwd=user.folder,
            env=user.environment | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def read_until(self, seen: Callable[[str], object]) -> None:
        """Read on until something was shown, or until the command has ended."""
        end = time.monotonic() + HANG
        while not seen(self.text):
            assert time.monotonic() < end, self.text
            try:
                self.text += self._decoder.decode(os.read(self._ours, 65536))
            except OSError:  # nobody holds the other end any more
                return

    def ended(self) -> int:
        self.read_until(lambda _: False)
        return self.process.wait(HANG)

    @property
    def drawn(self) -> list[str]:
        """Every line of the live display, without its colours."""
        return [re.sub(r"\x1b\[[\d;]*[mFJ]", "", text) for text in re.findall(r"([^\n\r]*)\x1b\[K", self.text)]

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(HANG)
        os.close(self._ours)


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path, host_delay=0.1) as user:
        user.write(BOOKS_SCRAPER)
        yield user


def test_progress_is_drawn_in_place_and_gives_way_to_the_account(user: ShellUser) -> None:
    terminal = Terminal(user, 80, *RUN)
    try:
        assert terminal.ended() == 0, terminal.text
    finally:
        terminal.close()
    assert any("█" in text and "pages/s" in text for text in terminal.drawn)
    assert any("in progress" in text and "records" in text for text in terminal.drawn)
    assert max(map(len, terminal.drawn)) < 80
    after = terminal.text.rpartition("\x1b[J")[2].replace("\r", "").splitlines()
    pages = len(user.catalogue()) + 1
    assert after[0].startswith("Done after ") and f"{pages} pages, {pages - 1} records" in after[0]
    assert after[1:] == [
        f"  seen {pages} = done {pages} + dead 0 + cancelled 0 + open 0",
        f"  books.jsonl  {pages - 1} rows",
    ]


def test_a_paused_run_says_so_and_ctrl_c_says_that_nothing_is_lost_and_how_to_go_on(user: ShellUser) -> None:
    terminal = Terminal(user, 80, *RUN)
    try:
        terminal.read_until(lambda text: re.search(r"ok [1-9]", text))
        user.site.site.host_delay = 2.0  # so that it is not over before it is paused
        name = user.ask("pause")["name"]
        terminal.read_until(lambda text: f"paused: shoal resume {name} resumes it" in text)
        terminal.press(b"\x03")
        assert terminal.ended() == 4, terminal.text
    finally:
        terminal.close()
    assert "Stopping; pages in progress are returned." in terminal.text
    assert "Traceback" not in terminal.text
    assert terminal.text.replace("\r", "").endswith(
        "Nothing is lost. Run it again to resume:\n"
        "  shoal run books.py -o books.jsonl --allow-private --workers 1 --concurrency 2\n"
    )


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
@pytest.mark.parametrize(("words", "completed"), [("shoal st", "status"), ("shoal export --fo", "--format --follow")])
def test_bash_completes_commands_and_options(user: ShellUser, words: str, completed: str) -> None:
    script = f"""
        eval "$(shoal completion bash)"
        COMP_WORDS=({words}); COMP_CWORD=$(({len(words.split())} - 1)); _shoal_completion shoal
        echo "${{COMPREPLY[@]}}"
    """
    path = f"{Path(sys.executable).parent}:{user.environment['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=user.folder,
        env=user.environment | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.stdout.split() == completed.split(), done.stderr


STOPS = """
import os, shoal
scraper = shoal.Scraper("stops", os.environ["SITE"])

@scraper.page("*")
async def look(page):
    secret = 6 * 7
    breakpoint()
    yield {"n": secret}
"""


def debugged(user: ShellUser, *keys: tuple[str, bytes]) -> tuple[Terminal, int]:
    """What a person types once something was shown, one after the other, and how the command ended."""
    (user.folder / "stops.py").write_text(STOPS)
    user.environment["SITE"] = user.url
    short = ("--handler-timeout", "1", "--lease", "2", "--heartbeat", "1")
    command = ("run", "stops.py", "-o", "stops.jsonl", "--allow-private", "--workers", "0", "--max-pages", "1")
    terminal = Terminal(user, 80, *command, *short)
    shown = 0
    try:
        for what, key in keys:
            terminal.read_until(lambda text, what=what, shown=shown: what in text[shown:])
            shown = len(terminal.text)
            terminal.press(key)
        return terminal, terminal.ended()
    finally:
        terminal.close()


def test_a_breakpoint_stops_in_the_terminal_and_no_time_limit_ends_it(user: ShellUser) -> None:
    wait = b"import time; time.sleep(4); print('slept', secret + 1)\n"  # longer than lease and time limit together
    terminal, status = debugged(user, ("(Pdb)", wait), ("slept 43", b"c\n"))
    assert status == 0, terminal.text
    assert (user.folder / "stops.jsonl").read_text() == '{"n":42}\n'
    assert "\x1b[J" not in terminal.text, "nothing is drawn over what the debugger shows"


def test_leaving_the_debugger_stops_the_run_and_costs_the_page_nothing(user: ShellUser) -> None:
    terminal, status = debugged(user, ("(Pdb)", b"q\n"))
    assert status == 4, terminal.text
    assert "failed" not in terminal.text
    terminal, status = debugged(user, ("(Pdb)", b"c\n"))
    assert status == 0 and (user.folder / "stops.jsonl").read_text() == '{"n":42}\n', terminal.text
