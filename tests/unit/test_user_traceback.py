"""Tracebacks of dead letters: they begin in the user's own code, and show where it ended."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from pipeline_harness import HOME, PipelineHarness, html

SCRAPER = """
import json

def shallow(page):
    yield json.loads("[" * 20 + "}")

def deep(page, n=40):
    return deep(page, n - 1) if n else json.loads("{")

async def waiting(page):
    json.loads("{")

def long(page):
    raise ValueError("x" * 5_000)
"""


async def traceback_of(tmp_path: Path, name: str) -> list[str]:
    file = tmp_path / "shop.py"
    file.write_text(SCRAPER)
    spec = importlib.util.spec_from_file_location("shop", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    harness = PipelineHarness()
    harness.answers[HOME] = html()
    harness.handler(getattr(module, name))
    outcome = await harness.run(failures={"handler": 9})
    assert outcome.result == "dead" and outcome.evidence is not None
    text: str = outcome.evidence["traceback"]
    return text.splitlines()


@pytest.mark.parametrize("name", ["shallow", "deep", "waiting"])
async def test_a_traceback_begins_in_the_users_code_and_ends_where_it_was_raised(tmp_path: Path, name: str) -> None:
    lines = await traceback_of(tmp_path, name)
    frames = [line for line in lines if line.startswith("  File")]
    assert lines[0] == "Traceback (most recent call last):"
    assert "shop.py" in frames[0] and frames[0].endswith(f"in {name}")
    assert "decode" in frames[-1] and lines[-1].startswith("json.decoder.JSONDecodeError")
    assert len(frames) <= 8


async def test_a_long_traceback_loses_its_middle(tmp_path: Path) -> None:
    lines = await traceback_of(tmp_path, "long")
    assert "shop.py" in lines[1] and "…" in lines and len("\n".join(lines)) < 2_100
