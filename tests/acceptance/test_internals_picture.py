"""The picture of a URL's path in docs/internals.md is what a trace of one URL shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from small_site import page, small_site

import shoal
from shoal.extract import parse_budget

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "shoal"
STEPS = ("exchange", "slot", "robots", "parse_budget", "handler_runner", "links")  # of the pipeline, in order


def picture() -> str:
    text = (ROOT / "docs" / "internals.md").read_text("utf-8")
    return text.partition("## The path of a URL")[2].split("```")[1]


def drawn_modules() -> list[str]:
    return re.findall(r"\b(?:sources|runs|worker|politeness|fetch|extract|store)/[a-z_/]+", picture())


class Trace:
    """Modules in the order in which a function of theirs is first called; constructors do not count."""

    def __init__(self) -> None:
        self.all: dict[str, None] = {}
        self.in_pipeline: dict[str, None] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(SOURCE)) or code.co_name in ("__init__", "<module>"):
            return
        module = str(Path(code.co_filename).relative_to(SOURCE).with_suffix(""))
        self.all.setdefault(module)
        if "worker/task/pipeline" in self.all:
            self.in_pipeline.setdefault(module.rpartition("/")[2])


def test_every_module_of_the_picture_is_there() -> None:
    drawn = drawn_modules()
    assert len(drawn) > 10
    assert [module for module in drawn if not (SOURCE / f"{module}.py").is_file()] == []


def test_a_traced_url_takes_the_way_of_the_picture(clean_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_budget, "UNCHECKED_SIZE", 0)
    monkeypatch.setattr(parse_budget.ParseBudget, "unchecked_size", 0)
    trace = Trace()
    with small_site() as site:
        site.pages["/one"] = page("<h1>One</h1>" + "<p>text</p>" * 100)
        Path("urls.txt").write_text(site.url("/one") + "\n")
        sys.setprofile(trace)
        try:
            result = shoal.get("urls.txt", {"title": "h1"}, output="out.csv", allow_private="127.0.0.1", delay="0.01")
        finally:
            sys.setprofile(None)
    assert [record["title"] for record in result] == ["One"]
    missing = {module for module in drawn_modules() if module not in trace.all}
    assert missing <= {"runs/relay"}  # its work is for a result store
    assert [module for module in trace.in_pipeline if module in STEPS] == list(STEPS)
