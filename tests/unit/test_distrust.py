"""Distrust: what somebody who may write into the queue leaves there harms nobody but themselves."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import product
from pathlib import Path

import pytest

from shoal.config import load
from shoal.control import acting, lock
from shoal.control.acting import Acting, actions, count, windows
from shoal.control.hooks import Hook, Hooks
from shoal.control.ownership import Ownership
from shoal.control.upkeep import Duty, Upkeep
from shoal.core.glob import glob
from shoal.core.lane import FREE
from shoal.core.run import TASK_BITS, NewRun, Run
from shoal.errors import Usage
from shoal.extract import scope
from shoal.extract.links import start_task
from shoal.extract.template import TemplateError, from_fields
from shoal.queue.base import Queue, Where
from shoal.queue.http.verbs import VERBS
from shoal.queue.sqlite import SqliteQueue
from shoal.web import tokens
from shoal.web.access import HERE, Caller
from shoal.web.gate import Keeper
from shoal.web.measured import NotMeasured, within_measure
from shoal.web.room import Room


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    opened = await SqliteQueue.open(":memory:")
    yield opened
    await opened.close()


def test_the_key_of_a_run_names_no_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "owners").mkdir()
    (tmp_path / "owners" / "plain").touch()
    (tmp_path / "elsewhere").touch()
    os.mkfifo(tmp_path / "pipe")  # whoever opens it to read waits for a writer
    assert Ownership.abandoned(tmp_path, "plain")
    for key in ("../elsewhere", "../pipe", str(tmp_path / "elsewhere"), "x\0y"):
        assert not Ownership.abandoned(tmp_path, key), key


async def test_only_its_owner_reads_the_file_of_a_queue(tmp_path: Path) -> None:
    opened = await SqliteQueue.open(str(tmp_path / "q.db"))
    await opened.keep_paper("session-key", "key", "x")
    modes = {file.name: file.stat().st_mode & 0o077 for file in tmp_path.glob("q.db*") if file.stat().st_size}
    await opened.close()
    assert modes and not any(modes.values()), modes


async def test_documents_that_make_no_sense_do_not_end_the_upkeep(queue: Queue) -> None:
    for kind in (lock.KIND, "schedule", "history", "hook.watch"):
        await queue.keep_paper(kind, "runs", "{no sense")
    stop = asyncio.Event()
    upkeep = asyncio.create_task(Upkeep(queue, retention=86_400.0).run(stop))
    await asyncio.wait([upkeep], timeout=0.3)
    assert not upkeep.done()
    stop.set()
    await upkeep
    assert await queue.papers(lock.KIND) == []  # a lock of nobody is forgotten


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), AttributeError("x"), TypeError("x")])
async def test_a_duty_that_stumbles_is_tried_again(error: Exception) -> None:
    async def work() -> None:
        raise error

    duty = Duty("d", 1.0, work)
    assert not await duty.once()
    assert type(error).__name__ in duty.failing


async def test_a_login_signs_no_message_whoever_asks_for_it(queue: Queue) -> None:
    async def send(*given: object) -> object:
        raise AssertionError

    mine = Hooks(queue, send, lambda run, stats: {}, {"shop": "bob:hunter2", "hook_a": "chosen"})  # type: ignore[arg-type]
    assert await mine.key_of(Hook("h", "u", secret="shop")) == ""
    assert await mine.key_of(Hook("h", "u", secret="HOOK_A")) == "chosen"


async def test_a_token_that_cannot_be_read_opens_nothing_and_leaves_nothing_open(queue: Queue) -> None:
    await queue.swap(tokens.KIND, "newer", '{"name": 5}', 0)
    keeper = await Keeper.open(queue, load({}, env={}), host="127.0.0.1")
    (known,) = await keeper.tokens()
    assert (known.name, known.scopes, tokens.matching([known], "")) == ("newer", (), None)
    assert not await keeper.still(HERE)


async def test_who_was_let_in_stays_as_long_as_their_token_does(queue: Queue) -> None:
    keeper = await Keeper.open(queue, load({}, env={}), host="127.0.0.1")
    assert await keeper.still(HERE)
    await tokens.add(queue, "a", ["read"])
    keeper.touched()
    reader = Caller("a", frozenset(["read"]))
    assert await keeper.still(reader) and not await keeper.still(HERE)
    assert not await keeper.still(Caller("a", frozenset(["admin"])))
    await tokens.remove(queue, "a")
    keeper.touched()
    assert not await keeper.still(reader)


def fits(pattern: str, text: str) -> bool:
    """The same said slowly."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(fits(pattern[1:], text[at:]) for at in range(len(text) + 1))
    return text[:1] == pattern[0] and fits(pattern[1:], text[1:])


def test_a_star_is_any_text_wherever_it_stands() -> None:
    patterns = ["".join(some) for n in range(5) for some in product("a*.", repeat=n)]
    texts = ["".join(some) for n in range(5) for some in product("a.\n", repeat=n)]
    wrong = [(p, t) for p in patterns for t in texts if bool(glob(p).fullmatch(t)) != fits(p, t)]
    assert not wrong


@pytest.mark.parametrize("make", [lambda it: glob(it).fullmatch, scope.glob])
def test_no_pattern_takes_long_whatever_the_address(make: Callable[[str], Callable[[str], object]]) -> None:
    began = time.perf_counter()
    assert not make("*a" * 20 + "*b")("http://h.example/" + "a" * 8_000)
    assert time.perf_counter() - began < 1.0


async def some_addresses(queue: Queue, many: int) -> Run:
    run = await queue.start_run(NewRun("books", "key", name="r1"))
    tasks = [start_task(f"https://h.example/{n}") for n in range(many)]
    await queue.add(run.id, tasks, {task.lane: FREE for task in tasks})
    return run


@pytest.mark.parametrize(("letters", "looked_at"), [(10, 0), (1900, acting.FEW)])
async def test_of_a_pattern_that_may_take_long_few_addresses_are_asked_at_once(
    queue: Queue, letters: int, looked_at: int
) -> None:
    run = await some_addresses(queue, 100)
    where = Where(url="*" + "a" * letters + "b*")
    first, *_ = [at async for _, at in windows(queue, run, None, where)]
    assert first == ((run.id << TASK_BITS) + looked_at if looked_at else 0)


async def test_counting_what_does_not_exist_ends_in_time(queue: Queue) -> None:
    run = await some_addresses(queue, 100)
    found = await count(queue, run, "ready", Where(url="*" + "a" * 1900 + "b*"), seconds=0.0)
    assert (found.count, found.more) == (0, True)


async def test_the_ring_of_actions_stays_small_whatever_was_asked_for(queue: Queue) -> None:
    await Acting(queue, "me").did("drop", "r" * 5000, url="*" * 8000, count=3)
    ((action,), _) = await actions(queue)
    assert len(action.about) == len(action.more["url"]) == acting.TOLD + 1
    assert action.more["count"] == 3


async def test_answers_that_nobody_asks_for_again_are_not_kept(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(queue, load({}, env={}), gate=await Keeper.open(queue, load({}, env={}), host="127.0.0.1"))
    now = 100.0
    monkeypatch.setattr("shoal.web.room.time.monotonic", lambda: now)

    async def answer() -> str:
        return "x"

    await room.once(("long",), answer, fresh=60.0)
    for number in range(50):
        now += 0.5
        await room.once(("page", number), answer)
    assert len(room._answers) < 5 and ("long",) in room._answers


async def test_what_is_made_of_a_shared_answer_is_as_old_as_that_is(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(queue, load({}, env={}), gate=await Keeper.open(queue, load({}, env={}), host="127.0.0.1"))
    now = 100.0
    monkeypatch.setattr("shoal.web.room.time.monotonic", lambda: now)

    async def clock() -> float:
        return now

    async def inner() -> float:
        return await room.once(("clock",), clock)

    async def outer() -> float:
        return await room.once(("inner",), inner)

    oldest = 0.0
    for step in range(60):
        now = 100.0 + step * 0.3
        await room.once(("clock",), clock) if step % 2 else None
        oldest = max(oldest, now - await room.once(("outer", step % 3), outer))
    assert oldest < 1.0


async def test_a_question_that_could_not_even_be_asked_is_asked_again(queue: Queue) -> None:
    room = Room(queue, load({}, env={}), gate=await Keeper.open(queue, load({}, env={}), host="127.0.0.1"))

    def refused() -> Awaitable[str]:
        raise Usage("not like this")

    async def answer() -> str:
        return "x"

    with pytest.raises(Usage):
        await room.once(("page",), refused)
    assert await room.once(("page",), answer) == "x"


@pytest.mark.parametrize("text", ["json:" + "[" * 400, "json:" + "!" * 900 + "a"])
def test_what_is_nested_too_deeply_is_refused_with_words(text: str) -> None:
    with pytest.raises(TemplateError, match="nested too deeply"):
        from_fields("x", {"t": text})


def test_a_run_that_the_server_could_not_read_is_refused() -> None:
    new = {"scraper": "s", "key": "k", "spec": {"api": "no table"}}
    args, named = VERBS["start_run"].unpack(VERBS["start_run"].pack((new,), {}))
    with pytest.raises(NotMeasured):
        within_measure("start_run", args, named)
