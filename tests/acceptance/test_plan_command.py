"""`shoal plan --measure`: a real crawl of the demo site tells how fast this machine is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.commands import machine_speed


@pytest.mark.faults  # for its time alone: three commands and a site are started
def test_a_plan_measures_how_fast_this_machine_is_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine_speed, "BOOKS", 60)
    monkeypatch.setenv("SHOAL_MAX_PAGES", "1")  # the user's own settings must not reach it
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "--urls", "1000", "--measure", "--json"]) == 0
    request = json.loads(capfd.readouterr().out)["request"]
    assert request["speed"] > 0 and request["speed"] != 1.0
    assert request["cpu_per_page"] == pytest.approx(0.365e-3 / request["speed"], rel=0.01)
    assert not list(tmp_path.iterdir())
