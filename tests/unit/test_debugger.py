"""breakpoint() in a worker process, which has no terminal."""

from __future__ import annotations

import sys

import pytest

from shoal.launch.debugger import refuse_breakpoints


def test_a_breakpoint_in_a_worker_process_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    refuse_breakpoints()
    with pytest.raises(RuntimeError, match="--workers 0"):
        sys.breakpointhook()


def test_a_debugger_of_the_users_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "remote.set_trace")
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    refuse_breakpoints()
    assert sys.breakpointhook is sys.__breakpointhook__
