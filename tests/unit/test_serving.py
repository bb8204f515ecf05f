"""What a member of the fleet makes for a run: nothing that the run's own words could turn against it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.app import TEMPLATE
from shoal.config import load
from shoal.core.run import NewRun, Run
from shoal.errors import Usage
from shoal.extract.scraper import Scraper
from shoal.extract.template.model import Template
from shoal.job import Duty
from shoal.queue.sqlite import SqliteQueue
from shoal.repertoire import Repertoire
from shoal.serving import Serving, Wires
from shoal.worker.note import Note
from shoal.worker.tools import NotServed, Tools


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[SqliteQueue]:
    opened = await SqliteQueue.open(str(tmp_path / "q.db"), synchronous="normal")
    yield opened
    await opened.close()


@pytest.fixture
async def tools(queue: SqliteQueue, tmp_path: Path, serving: Serving) -> AsyncIterator[Tools]:
    made = serving.tools(Note.unwritten("w"))
    yield made
    await made.close()


@pytest.fixture
def serving(queue: SqliteQueue, tmp_path: Path) -> Serving:
    duty = Duty(load({"queue": str(tmp_path / "q.db")}, env={}), "w")
    scraper = Scraper("books", "http://h/")
    return Serving(duty, Everything(duty, {"books": scraper}, {}), queue)


class Everything(Repertoire):
    anything = True


async def templated(queue: SqliteQueue, text: str, **new: Any) -> Run:
    await queue.keep_paper(TEMPLATE, "t", text)
    given: dict[str, Any] = {"name": "r1", "spec": {TEMPLATE: "t", "template_version": 1}}
    return await queue.start_run(NewRun("t", "k", **given | new))


def template(**settings: Any) -> str:
    return msgspec.json.encode(Template(name="t", start=("http://h/",), pages=(), settings=settings)).decode()


async def test_template_of_a_run_cannot_open_the_private_network_of_a_worker(
    queue: SqliteQueue, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[str] = []
    real = Wires.of

    def of(wires: Wires, run: int, settings: Any) -> Any:
        allowed.append(settings.allow_private)
        return real(wires, run, settings)

    monkeypatch.setattr(Wires, "of", of)
    run = await templated(queue, template(allow_private="1", user_agent="evil", queue="/elsewhere/x.db"))
    await tools.served(run.id)
    assert allowed == [""]


async def test_scraper_that_may_reach_private_hosts_shares_no_connections_with_others(
    queue: SqliteQueue, tools: Tools, serving: Serving
) -> None:
    serving._repertoire.scrapers["books"].settings["allow_private"] = "127.0.0.1:8000"
    run = await queue.start_run(NewRun("books", "k", name="r1"))
    assert (await tools.served(run.id)).fetcher is not serving._wires._fetchers[serving._wires._own]


@pytest.mark.parametrize("name", ["../../evil", "/evil", ".evil", "a/b", "a\n"])
async def test_run_whose_name_leads_to_other_files_is_refused(
    queue: SqliteQueue, tools: Tools, name: str
) -> None:
    run = await templated(queue, template(), name=name)
    with pytest.raises(NotServed, match="name"):
        await tools.served(run.id)


async def test_template_of_a_newer_version_is_left_to_others(queue: SqliteQueue, tools: Tools) -> None:
    run = await templated(queue, '{"name": "t", "pages": "of another kind"}')
    with pytest.raises(NotServed, match="not understood here"):
        await tools.served(run.id)


async def test_run_that_this_machine_has_no_room_for_is_left_to_others(
    queue: SqliteQueue, tools: Tools, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "raw")

    monkeypatch.setattr("shoal.serving.raw_shelf", full)
    run = await templated(queue, template(keep_raw=True))
    with pytest.raises(NotServed, match="No space left"):
        await tools.served(run.id)


async def test_nothing_is_kept_of_a_run_that_has_ended(
    queue: SqliteQueue, tools: Tools, serving: Serving
) -> None:
    run = await templated(queue, template(user_agent="mine"))
    await tools.served(run.id)
    assert len(serving._wires._fetchers) == 2
    await queue.set_run(run.id, "cancel")
    await serving._roster.look()
    with pytest.raises(NotServed, match="has ended"):  # a task of it that was still at hand
        await tools.served(run.id)
    assert not serving._built and len(serving._wires._fetchers) == 1


async def test_template_that_is_not_there_is_said_so(queue: SqliteQueue) -> None:
    from shoal.equip import template_scraper

    with pytest.raises(Usage, match="no template"):
        await template_scraper(queue, "t", 1)
