"""What people see while a run goes on."""

from __future__ import annotations

import io
import re
import shutil

import msgspec
import pytest
from fake_clock import FakeClock

from shoal.cli.console import (
    StatusLine,
    clean,
    display_width,
    format_duration,
    paint,
    print_json,
    print_line,
    safe_for_terminal,
    truncate,
    wrap,
)
from shoal.cli.progress import LiveUi, LogsAboveDisplay, PlainUi, RateMeter, header_lines, summary_lines
from shoal.core.lane import LaneState
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.core.task import Attempt
from shoal.queue.base import DeadLetterGroup, TaskView
from shoal.runs.host_limits import HostLimit
from shoal.runs.progress import RunInfo, RunProgress, RunSummary

RUN = Run(id=1, name="7KQ2", scraper="books", key="k", state="running", created_at=1, changed_at=1)


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def screen(text: str) -> list[str]:
    """What a terminal shows after these bytes: enough of one for what the display uses."""
    lines, row = [""], 0
    for token in re.findall(r"\x1b\[\d*[A-Za-z]|\n|[^\x1b\n]+", text):
        if token == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif token.startswith("\x1b["):
            if token.endswith("F"):
                row -= int(token[2:-1])
            elif token.endswith("J"):
                del lines[row + 1 :]
                lines[row] = ""
        else:
            lines[row] = token
        assert row >= 0
    return lines


def progress(done: int, **more: int) -> RunProgress:
    held = LaneState("cdn.example", 0, 1, 1, 0, 2, 0, 5, 60_000_000, True, "429 three times")
    slow = LaneState("shop.example", 0, 1, 1, 0, 2, 0, 84)
    stats = Stats(seen=488, done=done, ready=488 - done - 2, delayed=5, leased=2, records=done, **more)
    return RunProgress(stats, (slow, held), now=1, limits=(HostLimit(held, "held", 1.0),))


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    width = [100]
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: type("Size", (), {"columns": width[0]}))
    monkeypatch.setenv("NO_COLOR", "1")
    return width


def test_the_live_display_draws_over_itself(columns: list[int]) -> None:
    terminal, clock = Terminal(), FakeClock(0.0)
    ui = LiveUi(terminal, clock)
    for step in range(5):
        clock.at = step
        ui.update(progress(300 + 9 * step))
    shown = screen(terminal.getvalue())
    assert "336/488  69 %   9.0 pages/s" in shown[0]
    assert "ok 336 · records 336" in shown[1]
    assert "retrying 5" in shown[1]
    assert "slowest: shop.example  84 left at 1 page/s = 1:24" in shown[2]
    assert "parked for 1:00: cdn.example: 429 three times" in shown[3]
    assert len(shown) == 5


def test_no_run_is_shown_as_complete_before_it_is(columns: list[int]) -> None:
    for done, percent, full in ((487, "99 %", False), (488, "100 %", True)):
        terminal = Terminal()
        LiveUi(terminal, FakeClock(0.0)).update(RunProgress(Stats(seen=488, done=done, ready=488 - done)))
        (bar, *_) = screen(terminal.getvalue())
        assert f"{done}/488  {percent}" in bar and ("░" not in bar) == full


def test_messages_stay_above_the_display(columns: list[int]) -> None:
    terminal, clock = Terminal(), FakeClock(0.0)
    ui = LiveUi(terminal, clock)
    ui.update(progress(100))
    ui.message("Stopping after the pages in progress.")
    shown = screen(terminal.getvalue())
    assert shown[0] == "Stopping after the pages in progress."
    assert "100/488" in shown[1]


@pytest.mark.parametrize("width", [20, 40, 60, 200])
def test_no_line_is_wider_than_the_terminal(columns: list[int], width: int) -> None:
    columns[0] = width
    terminal = Terminal()
    LiveUi(terminal, FakeClock(0.0)).update(progress(100))
    assert all(display_width(text) < width for text in screen(terminal.getvalue()))


def test_without_colour_there_is_none_and_the_cursor_is_never_hidden(columns: list[int]) -> None:
    terminal = Terminal()
    ui = LiveUi(terminal, FakeClock(0.0))
    ui.update(progress(100))
    ui.close()
    assert not re.search(r"\x1b\[[\d;]*m", terminal.getvalue())
    assert "\x1b[?25l" not in terminal.getvalue()


def test_finish_leaves_the_summary_and_nothing_of_the_display(columns: list[int]) -> None:
    terminal = Terminal()
    ui = LiveUi(terminal, FakeClock(0.0))
    ui.update(progress(100))
    ui.finish(RunSummary(RUN, Stats(seen=5, done=5, records=7), "complete", seconds=3.2))
    assert screen(terminal.getvalue())[:2] == [
        "Done after 3 s: 5 pages, 7 records, 0 B.",
        "  seen 5 = done 5 + dead 0 + cancelled 0 + open 0",
    ]


def test_elsewhere_there_is_one_plain_line_every_few_seconds() -> None:
    stream, clock = io.StringIO(), FakeClock(0.0)
    ui = PlainUi(stream, clock)
    for tenth in range(101):
        clock.at = tenth / 10
        ui.update(progress(100 + tenth))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("200 of 488 pages · 10.0 pages/s · 200 records · waiting")
    assert "parked for 1:00: cdn.example: 429 three times" in lines[2]
    assert "\x1b" not in stream.getvalue()


def test_rates_look_at_the_last_seconds_only() -> None:
    rates = RateMeter()
    assert rates.per_second == 0.0
    for second in range(50):
        rates.add(second, 1000 * second)
    assert rates.per_second == 1000.0
    for second in range(50, 100):
        rates.add(second, 50_000)
    assert rates.per_second == 0.0


def test_the_end_says_what_failed_and_what_to_do() -> None:
    stats = Stats(seen=9, done=6, dead=3, skipped={"robots": 4, "scope": 9})
    groups = (DeadLetterGroup("a", "http.404", 2, "u", "", 1, 1), DeadLetterGroup("b", "http.404", 1, "u", "", 1, 1))
    text = "\n".join(summary_lines(RunSummary(RUN, stats, "dead", dead=groups, output="x.csv", rows=6)))
    assert "links not followed: scope 9 · robots 4" in text
    assert "failed: 3 × http.404" in text
    assert "shoal dead 7KQ2" in text
    assert "x.csv   6 rows" in text


def test_an_interrupted_run_names_the_command_that_goes_on() -> None:
    lines = summary_lines(RunSummary(RUN, Stats(seen=2, ready=2), "interrupted", resume_command="shoal run books.py"))
    assert lines[-1].endswith("shoal run books.py")


def test_an_account_that_does_not_balance_says_so() -> None:
    assert "seen 3 ≠ done 1" in "\n".join(summary_lines(RunSummary(RUN, Stats(seen=3, done=1), "unbalanced")))


def test_the_beginning_says_where_how_fast_and_what_goes_on() -> None:
    info = RunInfo(RUN, Stats(seen=10, done=4), ".shoal/shoal.db", resumed=True, pace="1 page/s per site")
    text = "\n".join(header_lines(info))
    for words in ("run 7KQ2", ".shoal/shoal.db", "Continuing run 7KQ2: 4 of 10", "robots.txt obeyed", "1 page/s"):
        assert words in text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0.0 s"),
        (0.02, "0.02 s"),
        (0.43, "0.4 s"),
        (7, "7 s"),
        (84, "1:24"),
        (44_460, "12h21"),
        (300_000, "3 d 11 h"),
    ],
)
def test_how_long(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


def test_text_from_outside_cannot_steer_the_terminal() -> None:
    assert clean("a\x1b[2Jb\nc\x07") == "a�[2Jb c�"
    assert truncate("日本語テキスト", 7) == "日本語…"


def test_a_paused_run_says_how_it_goes_on(columns: list[int]) -> None:
    terminal = Terminal()
    ui = LiveUi(terminal, FakeClock(0.0))
    ui.start(RunInfo(RUN, Stats(), "state"))
    ui.update(msgspec.structs.replace(progress(100), paused=True))
    assert "  paused: shoal resume 7KQ2 resumes it" in screen(terminal.getvalue())
    assert "left" not in terminal.getvalue()


def test_where_everything_waits_to_be_tried_again_it_says_why(columns: list[int]) -> None:
    failed = Attempt(at=1, worker="w", cause="connect", message="refused")
    view = TaskView(1, 1, "http://a.example/", "a.example", "delayed", due_at=54_000_001, history=(failed,))
    stuck = RunProgress(Stats(seen=1, ready=1, delayed=1), now=1, stuck=(view,))
    words = "  http://a.example/  again in 54 s after connect: refused"
    terminal, stream = Terminal(), io.StringIO()
    LiveUi(terminal, FakeClock(0.0)).update(stuck)
    PlainUi(stream, FakeClock(0.0)).update(stuck)
    assert words in screen(terminal.getvalue())
    assert words in stream.getvalue().splitlines()


def test_long_lines_are_broken_between_words_but_commands_are_not(columns: list[int]) -> None:
    columns[0] = 30
    assert wrap("  one two three four five six seven", Terminal(), "    ").splitlines() == [
        "  one two three four five six",
        "    seven",
    ]
    command = "  shoal run books.py -o books.jsonl --allow-private"
    assert wrap(command, Terminal()) == command
    assert wrap("one two " * 9, io.StringIO()) == ("one two " * 9).rstrip()


def test_the_page_limit_is_named_where_it_ended_the_run() -> None:
    run = msgspec.structs.replace(RUN, max_pages=5, state="finished", finished_at=1)
    summary = RunSummary(run, Stats(seen=9, done=5, cancelled=4), "complete")
    text = "\n".join(summary_lines(summary))
    assert "its limit of 5 pages ended it, and 4 more are left" in text and "without --max-pages" in text
    text = "\n".join(summary_lines(msgspec.structs.replace(summary, beyond=90)))
    assert "90 more are left" in text, "lines of a list are mostly not in the queue"
    text = "\n".join(summary_lines(msgspec.structs.replace(summary, now=10**15)))
    assert "are gone: --fresh starts over" in text


def test_log_lines_stand_above_the_display(columns: list[int]) -> None:
    terminal = Terminal()
    ui = LiveUi(terminal, FakeClock(0.0))
    ui.update(progress(100))
    print("10:10:13 warning worker_died", file=LogsAboveDisplay(ui.message))
    assert screen(terminal.getvalue())[0] == "10:10:13 warning worker_died"
    assert "100/488" in screen(terminal.getvalue())[1]


EVIL = "a\x1b]0;owned\x07b\x1b[2Jc\x9b1md\u202ee\x08\x7f\r"


def test_no_control_sequence_of_a_stranger_reaches_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert safe_for_terminal(EVIL) == "a\ufffd]0;owned\ufffdb\ufffd[2Jc\ufffd1md\ufffde\ufffd\ufffd\ufffd"
    assert safe_for_terminal("two\nlines\tand ü") == "two\nlines\tand ü"
    painted = paint("green", "green", Terminal())
    assert painted != "green" and safe_for_terminal(painted) == painted
    print_line(EVIL)
    StatusLine().draw(EVIL)
    print_json({"name": EVIL})
    out, err = capsys.readouterr()
    assert not set(out + err.lstrip("\r")) & set("\x1b\x07\x9b\u202e\x08\x7f\r")
    assert msgspec.json.decode(out.split("\n", 1)[1]) == {"name": EVIL}


def test_the_live_lines_are_harmless_too() -> None:
    stream = Terminal()
    LiveUi(stream)._draw([EVIL])
    assert "\x07" not in stream.getvalue() and "\x9b" not in stream.getvalue()
