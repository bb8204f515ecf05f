"""Templates that calls brought go with the last run that has them, and never before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from stepped import Clock

from shoal.app import TEMPLATE
from shoal.control.schedule import KIND as SCHEDULE
from shoal.core.run import NewRun, Run
from shoal.extract.template import Template
from shoal.extract.template.content import page_template
from shoal.queue.base import Queue
from shoal.queue.sqlite import SqliteQueue
from shoal.web import brought
from shoal.web.brought import Brought, in_use, keep_template


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def queue(clock: Clock) -> AsyncIterator[Queue]:
    opened = await SqliteQueue.open(":memory:", clock=clock)
    yield opened
    await opened.close()


def template(field: str = "title") -> Template:
    return page_template("batch", {field: "h1::text"}, "none")[0]


async def begun(queue: Queue, name: str, field: str = "title") -> Run:
    paper, version = await keep_template(queue, template(field))
    spec = {"template": paper, "template_version": version}
    return await queue.start_run(NewRun("batch", name, name=name, spec=spec))


async def names(queue: Queue) -> list[str]:
    return [paper.name for paper in await queue.papers(TEMPLATE)]


async def removed(queue: Queue, run: Run) -> None:
    await queue.set_run(run.id, "cancel")
    await queue.purge(run=run.id)


async def test_a_template_goes_with_the_last_run_that_has_it(queue: Queue, clock: Clock) -> None:
    first, second = await begun(queue, "r1"), await begun(queue, "r2")
    await begun(queue, "r3", "price")
    await removed(queue, first)
    clock.pass_(2 * brought.REST)
    assert await Brought(queue).tidy() == 0
    await removed(queue, second)
    assert await Brought(queue).tidy() == 1
    assert await names(queue) == [brought.name_of(template("price"))]
    assert len(await queue.papers(brought.KIND)) == 1


async def test_one_that_was_just_brought_stays_though_no_run_has_it_yet(queue: Queue, clock: Clock) -> None:
    await keep_template(queue, template())
    clock.pass_(brought.REST - 1)
    assert await Brought(queue).tidy() == 0
    await keep_template(queue, template())
    clock.pass_(brought.REST - 1)
    assert await Brought(queue).tidy() == 0 and len(await names(queue)) == 1


async def test_who_uses_it_while_it_is_looked_for_keeps_it(
    queue: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep_template(queue, template())
    clock.pass_(2 * brought.REST)
    asked = Brought._needed

    async def late(self: Brought) -> set[str]:
        found = await asked(self)
        await begun(queue, "r1")  # after everybody was asked whether they need it
        return found

    monkeypatch.setattr(Brought, "_needed", late)
    assert await Brought(queue).tidy() == 0
    assert len(await names(queue)) == 1


async def test_who_uses_it_while_it_goes_waits_and_keeps_it_again(queue: Queue, clock: Clock) -> None:
    name, version = await keep_template(queue, template())
    clock.pass_(2 * brought.REST)
    use = await queue.paper(brought.KIND, name)
    assert use is not None
    going = await queue.swap(brought.KIND, name, brought.GOING, use.version)
    assert going is not None
    using = asyncio.create_task(keep_template(queue, template()))
    await asyncio.sleep(0)
    assert await Brought(queue).tidy() == 0  # another is at it
    assert not using.done()
    await queue.swap(TEMPLATE, name, None, version)
    await queue.swap(brought.KIND, name, None, going.version)
    assert await using == (name, version)
    assert await names(queue) == [name]


@pytest.mark.parametrize("users", [0, 1])
async def test_whoever_died_while_removing_one_is_not_waited_for(
    queue: Queue, clock: Clock, users: int
) -> None:
    name, _ = await keep_template(queue, template())
    use = await queue.paper(brought.KIND, name)
    assert use is not None
    await queue.swap(brought.KIND, name, brought.GOING, use.version)
    clock.pass_(brought.FORGOTTEN + 1)
    if users:
        await begun(queue, "r1")
    assert await Brought(queue).tidy() == 1 - users
    assert await names(queue) == [name] * users
    assert len(await queue.papers(brought.KIND)) == users


async def test_those_of_an_older_version_are_found_and_those_of_people_stay(
    queue: Queue, clock: Clock
) -> None:
    text = msgspec.json.encode(template()).decode()
    await queue.keep_paper(TEMPLATE, brought.name_of(template()), text)
    await queue.keep_paper(TEMPLATE, "batch-mine-0123456789ab", text)
    await queue.keep_paper(TEMPLATE, "books", text)
    tidying = Brought(queue)
    assert await tidying.tidy() == 0
    clock.pass_(2 * brought.REST)
    assert await tidying.tidy() == 1
    assert await names(queue) == ["batch-mine-0123456789ab", "books"]


async def test_one_that_a_schedule_names_stays(queue: Queue, clock: Clock) -> None:
    name, _ = await keep_template(queue, template())
    await queue.keep_paper(SCHEDULE, "nightly", f'{{"order": {{"spec": {{"template": "{name}"}}}}}}')
    clock.pass_(2 * brought.REST)
    assert await Brought(queue).tidy() == 0


async def test_of_a_template_that_people_named_no_use_is_noted(queue: Queue) -> None:
    await in_use(queue, "books")
    assert await queue.papers(brought.KIND) == []
