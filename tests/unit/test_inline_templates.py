"""Templates that calls brought go with the last run that has them, and never before."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from fake_clock import FakeClock

from shoal.core.run import NewRun, Run
from shoal.extract.template import Template
from shoal.extract.template.content import page_template
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.web.submit import inline_templates
from shoal.web.submit.inline_templates import InlineTemplates, mark_in_use, store_template


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(tick=1)


def template(field: str = "title") -> Template:
    return page_template("batch", {field: "h1::text"}, "none")[0]


async def begun(queue: Queue, name: str, field: str = "title") -> Run:
    document, version = await store_template(queue, template(field))
    spec = {"template": document, "template_version": version}
    return await queue.start_run(NewRun("batch", name, name=name, spec=spec))


async def names(queue: Queue) -> list[str]:
    return [document.name for document in await queue.documents(kinds.TEMPLATE)]


async def removed(queue: Queue, run: Run) -> None:
    await queue.set_run(run.id, "cancel")
    await queue.purge(run=run.id)


async def test_a_template_goes_with_the_last_run_that_has_it(queue: Queue, clock: FakeClock) -> None:
    first, second = await begun(queue, "r1"), await begun(queue, "r2")
    await begun(queue, "r3", "price")
    await removed(queue, first)
    clock.step(2 * inline_templates.UNUSED_AFTER)
    assert await InlineTemplates(queue).remove_unused() == 0
    await removed(queue, second)
    assert await InlineTemplates(queue).remove_unused() == 1
    assert await names(queue) == [inline_templates.inline_name(template("price"))]
    assert len(await queue.documents(kinds.TEMPLATE_USE)) == 1


async def test_one_that_was_just_brought_stays_though_no_run_has_it_yet(queue: Queue, clock: FakeClock) -> None:
    await store_template(queue, template())
    clock.step(inline_templates.UNUSED_AFTER - 1)
    assert await InlineTemplates(queue).remove_unused() == 0
    await store_template(queue, template())
    clock.step(inline_templates.UNUSED_AFTER - 1)
    assert await InlineTemplates(queue).remove_unused() == 0 and len(await names(queue)) == 1


async def test_who_uses_it_while_it_is_looked_for_keeps_it(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_template(queue, template())
    clock.step(2 * inline_templates.UNUSED_AFTER)
    asked = InlineTemplates._names_in_use

    async def late(self: InlineTemplates) -> set[str]:
        found = await asked(self)
        await begun(queue, "r1")  # after everybody was asked whether they need it
        return found

    monkeypatch.setattr(InlineTemplates, "_names_in_use", late)
    assert await InlineTemplates(queue).remove_unused() == 0
    assert len(await names(queue)) == 1


async def test_who_uses_it_while_it_goes_waits_and_keeps_it_again(queue: Queue, clock: FakeClock) -> None:
    name, version = await store_template(queue, template())
    clock.step(2 * inline_templates.UNUSED_AFTER)
    use = await queue.document(kinds.TEMPLATE_USE, name)
    assert use is not None
    going = await queue.compare_and_swap(kinds.TEMPLATE_USE, name, inline_templates.REMOVING, use.version)
    assert going is not None
    using = asyncio.create_task(store_template(queue, template()))
    await asyncio.sleep(0)
    assert await InlineTemplates(queue).remove_unused() == 0  # another is at it
    assert not using.done()
    await queue.compare_and_swap(kinds.TEMPLATE, name, None, version)
    await queue.compare_and_swap(kinds.TEMPLATE_USE, name, None, going.version)
    assert await using == (name, version)
    assert await names(queue) == [name]


@pytest.mark.parametrize("users", [0, 1])
async def test_whoever_died_while_removing_one_is_not_waited_for(queue: Queue, clock: FakeClock, users: int) -> None:
    name, _ = await store_template(queue, template())
    use = await queue.document(kinds.TEMPLATE_USE, name)
    assert use is not None
    await queue.compare_and_swap(kinds.TEMPLATE_USE, name, inline_templates.REMOVING, use.version)
    clock.step(inline_templates.REMOVAL_TIMEOUT + 1)
    if users:
        await begun(queue, "r1")
    assert await InlineTemplates(queue).remove_unused() == 1 - users
    assert await names(queue) == [name] * users
    assert len(await queue.documents(kinds.TEMPLATE_USE)) == users


async def test_those_of_an_older_version_are_found_and_those_of_people_stay(queue: Queue, clock: FakeClock) -> None:
    text = msgspec.json.encode(template()).decode()
    await queue.save_document(kinds.TEMPLATE, inline_templates.inline_name(template()), text)
    await queue.save_document(kinds.TEMPLATE, "batch-mine-0123456789ab", text)
    await queue.save_document(kinds.TEMPLATE, "books", text)
    tidying = InlineTemplates(queue)
    assert await tidying.remove_unused() == 0
    clock.step(2 * inline_templates.UNUSED_AFTER)
    assert await tidying.remove_unused() == 1
    assert await names(queue) == ["batch-mine-0123456789ab", "books"]


async def test_one_that_a_schedule_names_stays(queue: Queue, clock: FakeClock) -> None:
    name, _ = await store_template(queue, template())
    await queue.save_document(kinds.SCHEDULE, "nightly", f'{{"order": {{"spec": {{"template": "{name}"}}}}}}')
    clock.step(2 * inline_templates.UNUSED_AFTER)
    assert await InlineTemplates(queue).remove_unused() == 0


async def test_of_a_template_that_people_named_no_use_is_noted(queue: Queue) -> None:
    await mark_in_use(queue, "books")
    assert await queue.documents(kinds.TEMPLATE_USE) == []
