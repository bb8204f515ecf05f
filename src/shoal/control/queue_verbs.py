"""A stranger's verbs on a queue: what a message may ask for, and how it is done in bounded steps.

Whoever speaks for a queue uses this: the server over HTTP, and the relay behind RabbitMQ.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from shoal.control.actions import BATCH_SIZE, included_states, matching_tasks
from shoal.core.run import Run
from shoal.core.task import State
from shoal.errors import ShoalError
from shoal.queue.base import Queue, TaskFilter
from shoal.queue.document_kinds import is_server_only
from shoal.queue.request_cost import RequestTooCostly, limit_cost, unstorable
from shoal.queue.wire import MAX_WAIT, VERBS

MAX_MESSAGE = 64_000_000  # bytes of one message: a settle with its records
MAX_TOTAL = 192_000_000  # of all messages that are being read
SMALL_MESSAGE = 1_000_000  # bytes up to which a message is not counted among those
MAX_SECONDS = 20.0  # seconds for one of the long verbs: whoever asked is told to ask again before they give up
_LONG_VERBS = ("drop", "revive", "purge")
_DOCUMENT_VERBS = ("save_document", "document", "compare_and_swap", "documents")


class InvalidMessage(ShoalError):
    """This is no message of the verb that it is said to be."""

    def __init__(self, verb: str, why: object) -> None:
        super().__init__(f"this is not a message of {verb}: {why}")


class ReservedDocument(ShoalError):
    hint = "use the queue's own URL, from where it can be reached"


class OperationIncomplete(ShoalError):
    hint = "repeat the request: it continues where it was"


def read_verb(verb: str, message: bytes, *, cache_size: int) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a verb, within bounds; `cache_size` is what the queue's own machine has room for."""
    try:
        args, named = VERBS[verb].unpack(message)
        limit_cost(verb, args, named)
    except (msgspec.DecodeError, UnicodeDecodeError, RequestTooCostly) as error:
        raise InvalidMessage(verb, error) from None
    if verb in _DOCUMENT_VERBS and is_server_only(str(args[0])):
        raise ReservedDocument(f"documents of the kind {args[0]} are internal to the server")
    if verb == "wait":
        args = [max(0.0, min(float(args[0]), MAX_WAIT))]
    if verb == "cache_put":
        args[1] = min(args[1], cache_size)
    return args, named


async def do_verb(queue: Queue, verb: str, args: list[Any], named: dict[str, Any]) -> Any:
    with refusing_unstorable(verb, (args, named)):
        if verb in _LONG_VERBS:
            return await _bounded(queue, verb, args, named)
        return await getattr(queue, verb)(*args, **named)


@contextlib.contextmanager
def refusing_unstorable(verb: str, brought: Any) -> Iterator[None]:
    """Whoever brought what no store can keep is told so: it is no failure of ours."""
    try:
        yield
    except (ValueError, ArithmeticError) as error:
        # Looked for only now: a store says no to such values by itself, and nearly nobody sends them.
        what = unstorable(brought)
        if what is None:
            raise
        raise InvalidMessage(verb, what) from error


async def _bounded(queue: Queue, verb: str, args: list[Any], named: dict[str, Any]) -> Any:
    """A verb that may change very many tasks; each of its steps counts, also when time runs out."""
    try:
        async with asyncio.timeout(MAX_SECONDS):
            if verb == "purge":
                return await queue.purge(*args, **named)
            return await _in_steps(queue, verb, *args, **named)
    except TimeoutError:
        raise OperationIncomplete(f"{verb} takes longer than one request may take") from None


async def _in_steps(queue: Queue, verb: str, run: int, where: TaskFilter, *, limit: int, **named: Any) -> int:
    """Many tasks are changed some at a time, so that everybody else gets a turn; see also Acting."""
    act = getattr(queue, verb)
    await act(run, where, limit=0, **named)  # it says whether the run takes it at all
    count = 0
    async for some in _split_filter(queue, run, where, named.get("state", "dead")):
        while count < limit and (changed := await act(run, some, limit=min(BATCH_SIZE, limit - count), **named)):
            count += changed
            await asyncio.sleep(0)
        if count >= limit:
            break
    return count


async def _split_filter(queue: Queue, run: int, where: TaskFilter, state: State) -> AsyncIterator[TaskFilter]:
    """A filter as filters that each look at few tasks."""
    if where.ids:
        for at in range(0, len(where.ids), BATCH_SIZE):
            yield msgspec.structs.replace(where, ids=where.ids[at : at + BATCH_SIZE])
    elif where == TaskFilter():
        yield where
    else:
        found = await queue.runs(before=run + 1, limit=1)
        if not found or found[0].id != run:
            return  # it was removed meanwhile
        for each in included_states(state):
            async for page in matching_tasks(queue, found[0], each, where, limit=BATCH_SIZE):
                yield TaskFilter(ids=tuple(view.id for view in page))


def without_hooks(result: Any) -> Any:
    """Runs as whoever works on them needs them: the URL of a webhook may itself be a secret."""
    if isinstance(result, list):
        return [without_hooks(one) for one in result] if result and isinstance(result[0], Run) else result
    if isinstance(result, Run) and "hooks" in result.spec:
        return msgspec.structs.replace(result, spec={key: it for key, it in result.spec.items() if key != "hooks"})
    return result
