"""Notes before the first page: what differs from when a run began, and what follows from that."""

from __future__ import annotations

import pytest

import shoal
from shoal.commands.run_notes import run_notes
from shoal.config.load import load
from shoal.core.run import Run, RunState
from shoal.extract import registry
from shoal.runs.request import RunRequest
from shoal.runs.spec import new_spec

SCRAPER = shoal.Scraper("books", start="https://a.example/")
SCRAPER.page("/*")(lambda page: {"url": page.url})
REQUEST = RunRequest(SCRAPER, target="books.py")


def ended(version: str, state: RunState = "finished") -> Run:
    spec = new_spec("books", mode="single", settings={}, start=(), each=False, code=("books.py", version))
    return Run(1, "7KQ2", "books", "k", state, 1, 1, spec=spec)


@pytest.mark.parametrize(
    ("state", "flags", "words"),
    [
        ("finished", {"keep_raw": True}, "With --from-raw 7KQ2 and another -o"),
        ("finished", {}, "with --keep-raw, the next ones"),
        ("running", {}, ""),
    ],
)
def test_changed_code_is_told_how_it_gets_at_the_pages(state: RunState, flags: dict[str, bool], words: str) -> None:
    (note,) = run_notes(ended("another", state), load(flags, env={}), REQUEST, ())
    assert note.startswith("The code has changed since this run began (another, now ")
    assert words in note and (bool(words) or note.endswith(")."))
    assert not list(run_notes(ended(registry.version_of(SCRAPER)), load(flags, env={}), REQUEST, ()))
