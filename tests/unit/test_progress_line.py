"""Progress of in-process runs: one line that changes, where somebody sees it."""

from __future__ import annotations

import io
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from shoal.commands.progress_line import ProgressLine, progress_line
from shoal.core.stats import Stats
from shoal.runs.progress import RunProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def looked(done: int, **more: Any) -> RunProgress:
    seen = more.pop("seen", 40)
    return RunProgress(Stats(seen=seen, done=done, ready=seen - done, records=2 * done, **more))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    return Terminal()


def test_a_terminal_has_one_line_that_is_written_over_and_stays_at_the_end(terminal: Terminal) -> None:
    line = progress_line(None, terminal)
    assert line is not None
    line.update(looked(1))
    line.update(looked(40, dead=0))  # too soon to be drawn
    line.close()
    text = terminal.getvalue()
    assert text.startswith("\r1 of 40 pages · ") and "2 records" in text
    assert text.count("\r") == 2 and text.count("\n") == 1 and text.endswith("\n")
    assert "40 of 40 pages" in text


def test_a_narrow_terminal_is_not_overrun(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    line = progress_line(True, terminal)
    assert line is not None
    line.update(looked(1))
    assert terminal.getvalue() == "\r1 of 40 pag\x1b[K"


@pytest.mark.parametrize(("wanted", "shown"), [(None, False), (False, False), (True, True)])
def test_where_nobody_looks_it_is_shown_only_if_asked_for(wanted: bool | None, shown: bool) -> None:
    stream = io.StringIO()
    line = progress_line(wanted, stream)
    assert (line is not None) is shown
    if line is not None:
        line.update(looked(1))
        assert stream.getvalue().endswith("\n") and "\x1b" not in stream.getvalue()


def test_it_can_be_turned_off_on_a_terminal(terminal: Terminal) -> None:
    assert progress_line(False, terminal) is None


def test_a_dumb_terminal_gets_nothing_unless_asked_for(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert progress_line(None, terminal) is None


def notebook(monkeypatch: pytest.MonkeyPatch, shell: object) -> list[tuple[str, Any]]:
    """IPython as a notebook has it, as far as it is used here."""
    shown: list[tuple[str, Any]] = []

    def display(data: Any, *, raw: bool, display_id: bool) -> Any:
        assert raw and display_id
        shown.append(("display", data))
        return SimpleNamespace(update=lambda data, *, raw: shown.append(("update", data)))

    ipython, module = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shown


def test_a_notebook_has_one_output_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = notebook(monkeypatch, SimpleNamespace(kernel=object()))
    line = progress_line(None, io.StringIO())
    assert line is not None
    line.update(looked(1))
    line.close()
    assert [what for what, _ in shown] == ["display", "update"]
    assert shown[0][1]["text/plain"].startswith("1 of 40 pages")


def test_ipython_on_a_terminal_is_a_terminal(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> None:
    shown = notebook(monkeypatch, SimpleNamespace())
    line = progress_line(None, terminal)
    assert line is not None
    line.update(looked(1))
    assert not shown and terminal.getvalue()


@pytest.mark.parametrize(
    ("progress", "says"),
    [
        (looked(1, seen=1), "1 of 1 page · "),
        (looked(10, dead=2), "2 failed"),
        (RunProgress(Stats(seen=4, done=1, ready=3), paused=True), "paused"),
    ],
)
def test_what_the_line_says(progress: RunProgress, says: str) -> None:
    lines: list[str] = []
    ProgressLine(lines.append).update(progress)
    assert says in lines[0]
