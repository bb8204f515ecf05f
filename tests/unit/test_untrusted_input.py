"""Untrusted input: what somebody with write access to the queue puts there harms only themselves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import product
from pathlib import Path

import pytest
from wait import until

from shoal.config.load import load
from shoal.control import actions
from shoal.control.actions import UserActions, count_tasks, recent_actions, scan_windows
from shoal.control.maintenance import Maintenance, PeriodicJob
from shoal.core.glob import Glob
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import TASK_BITS, NewRun, Run
from shoal.errors import UsageError
from shoal.extract import scope
from shoal.extract.template import TemplateError, from_fields
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue, TaskFilter
from shoal.queue.request_cost import RequestTooCostly, limit_cost
from shoal.queue.sqlite import SqliteQueue
from shoal.queue.wire import VERBS
from shoal.runs.local_lock import LocalLock
from shoal.sources.start_task import start_task
from shoal.web.auth import tokens
from shoal.web.auth.access import LOOPBACK_CALLER, Caller
from shoal.web.auth.authenticate import TokenAuthenticator
from shoal.web.context import ServerContext


def test_the_key_of_a_run_names_no_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "owners").mkdir()
    (tmp_path / "owners" / "plain").touch()
    (tmp_path / "elsewhere").touch()
    os.mkfifo(tmp_path / "pipe")  # whoever opens it to read waits for a writer
    assert LocalLock.is_abandoned(tmp_path, "plain")
    for key in ("../elsewhere", "../pipe", str(tmp_path / "elsewhere"), "x\0y"):
        assert not LocalLock.is_abandoned(tmp_path, key), key


async def test_only_its_owner_reads_the_file_of_a_queue(tmp_path: Path) -> None:
    opened = await SqliteQueue.open(str(tmp_path / "q.db"))
    await opened.save_document("session-key", "key", "x")
    modes = {file.name: file.stat().st_mode & 0o077 for file in tmp_path.glob("q.db*") if file.stat().st_size}
    await opened.close()
    assert modes and not any(modes.values()), modes


async def test_documents_that_make_no_sense_do_not_end_the_maintenance(queue: Queue) -> None:
    for kind in (kinds.LOCK, kinds.SCHEDULE, kinds.HISTORY, kinds.WEBHOOK_WATCH):
        await queue.save_document(kind, "runs", "{no sense")

    async def is_forgotten() -> bool:
        return not await queue.documents(kinds.LOCK)

    stop = asyncio.Event()
    maintenance = asyncio.create_task(Maintenance(queue, retention=86_400.0).run(stop))
    await until(is_forgotten)  # a lock of nobody
    assert not maintenance.done()
    stop.set()
    await maintenance


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), AttributeError("x"), TypeError("x")])
async def test_a_duty_that_stumbles_is_tried_again(error: Exception) -> None:
    async def work() -> None:
        raise error

    duty = PeriodicJob("d", 1.0, work)
    assert not await duty.run_once()
    assert type(error).__name__ in duty.last_error


async def test_a_token_that_cannot_be_read_opens_nothing_and_leaves_nothing_open(queue: Queue) -> None:
    await queue.compare_and_swap(kinds.TOKEN, "newer", '{"name": 5}', 0)
    authenticator = await TokenAuthenticator.open(queue, load({}, env={}), host="127.0.0.1")
    (known,) = await authenticator.tokens()
    assert (known.name, known.scopes, tokens.find_matching([known], "")) == ("newer", (), None)
    assert not await authenticator.is_still_valid(LOOPBACK_CALLER)


async def test_who_was_let_in_stays_as_long_as_their_token_does(queue: Queue) -> None:
    authenticator = await TokenAuthenticator.open(queue, load({}, env={}), host="127.0.0.1")
    assert await authenticator.is_still_valid(LOOPBACK_CALLER)
    await tokens.add(queue, "a", ["read"])
    authenticator.invalidate()
    reader = Caller("a", frozenset(["read"]))
    assert await authenticator.is_still_valid(reader) and not await authenticator.is_still_valid(LOOPBACK_CALLER)
    assert not await authenticator.is_still_valid(Caller("a", frozenset(["admin"])))
    await tokens.remove(queue, "a")
    authenticator.invalidate()
    assert not await authenticator.is_still_valid(reader)


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
    wrong = [(p, t) for p in patterns for t in texts if bool(Glob(p).fullmatch(t)) != fits(p, t)]
    assert not wrong


@pytest.mark.parametrize("make", [lambda it: Glob(it).fullmatch, scope.glob])
def test_no_pattern_takes_long_whatever_the_url(make: Callable[[str], Callable[[str], object]]) -> None:
    assert not make("*a" * 20 + "*b")("http://h.example/" + "a" * 8_000)  # else it would take years


async def some_urls(queue: Queue, many: int) -> Run:
    run = await queue.start_run(NewRun("books", "key", name="r1"))
    tasks = [start_task(f"https://h.example/{n}") for n in range(many)]
    await queue.add(run.id, tasks, {task.lane: UNLIMITED_PACE for task in tasks})
    return run


@pytest.mark.parametrize(("letters", "looked_at"), [(10, 0), (1900, actions.MIN_WINDOW)])
async def test_of_a_pattern_that_may_take_long_few_urls_are_asked_at_once(
    queue: Queue, letters: int, looked_at: int
) -> None:
    run = await some_urls(queue, 100)
    where = TaskFilter(url="*" + "a" * letters + "b*")
    first, *_ = [at async for _, at in scan_windows(queue, run, None, where)]
    assert first == ((run.id << TASK_BITS) + looked_at if looked_at else 0)


async def test_counting_what_does_not_exist_ends_in_time(queue: Queue) -> None:
    run = await some_urls(queue, 100)
    found = await count_tasks(queue, run, "ready", TaskFilter(url="*" + "a" * 1900 + "b*"), seconds=0.0)
    assert (found.count, found.more) == (0, True)


async def test_the_ring_of_actions_stays_small_whatever_was_asked_for(queue: Queue) -> None:
    await UserActions(queue, "me").log_action("drop", "r" * 5000, url="*" * 8000, count=3)
    ((action,), _) = await recent_actions(queue)
    assert len(action.about) == len(action.more["url"]) == actions.MAX_TEXT + 1
    assert action.more["count"] == 3


async def test_answers_that_nobody_asks_for_again_are_not_kept(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ServerContext(
        queue, load({}, env={}), authenticator=await TokenAuthenticator.open(queue, load({}, env={}), host="127.0.0.1")
    )
    now = 100.0
    monkeypatch.setattr("shoal.web.context.time.monotonic", lambda: now)

    async def answer() -> str:
        return "x"

    await context.cached(("long",), answer, max_age=60.0)
    for number in range(50):
        now += 0.5
        await context.cached(("page", number), answer)
    assert len(context._cache) < 5 and ("long",) in context._cache


async def test_what_is_made_of_a_shared_answer_is_as_old_as_that_is(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ServerContext(
        queue, load({}, env={}), authenticator=await TokenAuthenticator.open(queue, load({}, env={}), host="127.0.0.1")
    )
    now = 100.0
    monkeypatch.setattr("shoal.web.context.time.monotonic", lambda: now)

    async def clock() -> float:
        return now

    async def inner() -> float:
        return await context.cached(("clock",), clock)

    async def outer() -> float:
        return await context.cached(("inner",), inner)

    oldest = 0.0
    for step in range(60):
        now = 100.0 + step * 0.3
        await context.cached(("clock",), clock) if step % 2 else None
        oldest = max(oldest, now - await context.cached(("outer", step % 3), outer))
    assert oldest < 1.0


async def test_a_question_that_could_not_even_be_asked_is_asked_again(queue: Queue) -> None:
    context = ServerContext(
        queue, load({}, env={}), authenticator=await TokenAuthenticator.open(queue, load({}, env={}), host="127.0.0.1")
    )

    def refused() -> Awaitable[str]:
        raise UsageError("not like this")

    async def answer() -> str:
        return "x"

    with pytest.raises(UsageError):
        await context.cached(("page",), refused)
    assert await context.cached(("page",), answer) == "x"


@pytest.mark.parametrize("text", ["json:" + "[" * 400, "json:" + "!" * 900 + "a"])
def test_what_is_nested_too_deeply_is_refused_with_words(text: str) -> None:
    with pytest.raises(TemplateError, match="nested too deeply"):
        from_fields("x", {"t": text})


def test_a_run_that_the_server_could_not_read_is_refused() -> None:
    new = {"scraper": "s", "key": "k", "spec": {"api": "no table"}}
    args, named = VERBS["start_run"].unpack(VERBS["start_run"].pack((new,), {}))
    with pytest.raises(RequestTooCostly):
        limit_cost("start_run", args, named)
