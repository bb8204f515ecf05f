"""shoal changes, GET /api/v1/runs/{run}/changes and the run's page: what changed, came and went."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from changing_site import HOME, ChangingSite, links
from server_process import running_server

from shoal.cli.main import main
from shoal.core.run import NewRun
from shoal.queue.sqlite import SqliteQueue
from shoal.view import changes as view

WORDS = "1 unchanged, 2 changed, 1 new, 1 gone"


async def crawl_twice(path: Path) -> None:
    queue = await SqliteQueue.open(str(path))
    site = ChangingSite(queue)
    site.pages = {"/": links("/a", "/b", "/c"), "/a": "<p>a</p>", "/b": "<p>b</p>", "/c": "<p>c</p>"}
    await site.crawl()
    site.pages |= {"/": links("/a", "/b", "/d"), "/b": "<p>other</p>", "/d": "<p>d</p>"}
    await site.crawl()
    await queue.close()


@pytest.fixture
def state(tmp_path: Path) -> str:
    path = tmp_path / "shoal.db"
    asyncio.run(crawl_twice(path))
    return f"sqlite:///{path}"


def shown(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["changes", *args])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("slice", [1, 2, 500])
def test_the_command_lists_pages_by_what_became_of_them(
    state: str, slice: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "SLICE", slice)
    code, out, _ = shown(capsys, "--queue", state)
    assert code == 0
    head, *lines = out.splitlines()
    assert head == f"run-2: {WORDS} (compared with run-1)"
    assert sorted(lines) == [
        f"  changed  {HOME}  (links)", f"  changed  {HOME}b  (text)", f"  gone     {HOME}c", f"  new      {HOME}d",
    ]  # fmt: skip
    code, out, _ = shown(capsys, "run-2", "--only", "gone", "--json", "--queue", state)
    told: dict[str, Any] = json.loads(out)
    assert told["pages"] == [{"change": "gone", "url": f"{HOME}c"}]
    assert (told["run"], told["previous"], told["gone"], told["unchanged"]) == ("run-2", "run-1", 1, 1)


def test_a_first_run_and_one_that_compares_nothing_say_so(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = shown(capsys, "run-1", "--queue", state)
    assert (code, out.splitlines()) == (
        0,
        ["run-1: 4 pages remembered: the next run with --changed-only is compared with this one"],
    )

    async def start() -> None:
        queue = await SqliteQueue.open(state.removeprefix("sqlite:///"))
        await queue.start_run(NewRun(scraper="plain", key="p", name="plain"))
        await queue.close()

    asyncio.run(start())
    code, _, err = shown(capsys, "plain", "--queue", state)
    assert code == 2
    assert "run plain did not compare its pages with an earlier run" in err
    assert "--changed-only" in err
    assert shown(capsys, "--only", "same", "--queue", state)[0] == 2


def test_the_api_and_the_page_say_the_same(state: str) -> None:
    with running_server(state, "--no-maintenance") as server:
        items: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = server.ask("/api/v1/runs/run-2/changes", params={"cursor": cursor})
            items += page["items"]
            if not (cursor := page["next"]):
                break
        assert {(it["change"], it["url"]) for it in items} == {
            ("changed", HOME), ("changed", f"{HOME}b"), ("gone", f"{HOME}c"), ("new", f"{HOME}d"),
        }  # fmt: skip
        assert page["counts"]["changed"] == 2
        assert WORDS in server.get("/runs/run-2").text
