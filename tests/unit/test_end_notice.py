"""What is said before a run ends: which one, whose, and how far it has come."""

from __future__ import annotations

import pytest

from shoal.cli.confirm import confirm_end, end_confirmation
from shoal.config.load import load
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.errors import UsageError
from shoal.view.end_notice import EndNotice

RUN = Run(id=1, name="7KQ2", scraper="books", key="k", state="running", created_at=0, changed_at=1)
NOTICE = EndNotice(RUN, Stats(seen=1041, done=1, ready=1030, leased=10), 60_000_000, "ann@laptop\x1b[2J")


def test_it_says_which_run_whose_and_how_much_of_it_is_done() -> None:
    shown = "submitted by ann@laptop\N{REPLACEMENT CHARACTER}[2J 1:00 ago: 1 page done, 1,040 open"
    assert str(NOTICE).startswith("run 7KQ2 (books), ") and str(NOTICE).endswith(shown)
    assert "started 1:00 ago" in str(EndNotice(RUN, Stats(), 60_000_000))


def test_without_a_terminal_it_is_refused_with_the_flag_and_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(UsageError, match="would end run 7KQ2") as refused:
        confirm_end(NOTICE)
    assert refused.value.hint.startswith("add --yes.") and "shoal cancel --undo 7KQ2" in refused.value.hint


def test_with_yes_it_is_said_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    shared = load({"queue": "redis://127.0.0.1/0"}, env={})
    announce = end_confirmation(shared, yes=True)
    assert announce is not None and end_confirmation(load({}, env={}), yes=True) is None
    announce(NOTICE)
    told = capsys.readouterr()
    assert "This ends run 7KQ2 (books)" in told.err and "shoal cancel --undo 7KQ2" in told.err and not told.out
