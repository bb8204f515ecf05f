"""NewShard: what may become a shard. It is looked at once, because a shard can never be taken away again.

A queue that is in use would lose what it has: its runs are no parts of anything, and its workers refuse one shard of
several. And one store by two names would hand out the same lane twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from shoal.core.queue_url import SHARDS, split_urls
from shoal.errors import QueueUnavailable, UsageError
from shoal.queue.base import Queue
from shoal.queue.document_kinds import SHARD_MAP
from shoal.queue.shards.shard import Shard
from shoal.queue.shards.shard_map import NAME
from shoal.queue.shards.shard_url import shard_name, shard_urls

PROBE = "probe-"
EXAMPLE = "shoal shards add redis://c:6379/0"
EMPTY = "a new shard is empty: name another namespace or database; runs can be brought there with shoal move"


def check_new_url(url: str) -> None:
    """UsageError for what is not the URL of one queue that can be a shard."""
    if "://" not in url:
        raise UsageError(f"{url!r} is not the URL of a queue", hint=EXAMPLE)
    if len(split_urls(url)) > 1 or url.startswith(SHARDS):
        raise UsageError(f"{shard_name(url)} are several queues, and not one more shard", hint=EXAMPLE)
    shard_urls(url)


async def check_empty(shards: Sequence[Shard]) -> None:
    """UsageError if one of these has runs of its own; one that is away is not looked at."""
    for shard in shards:
        if await shard.hint(lambda it: it.runs(limit=1), None):
            raise UsageError(f"{shard.name} has runs of its own", hint=EMPTY)


async def check_is_no_shard(shard: Shard) -> None:
    """UsageError if it is a shard already, by whatever name, of this queue or of another."""
    if await shard.ask(lambda it: it.document(SHARD_MAP, NAME)) is not None:
        raise UsageError(f"{shard.name} is a shard already, by this name or another", hint=EMPTY)


async def check_apart(shards: Sequence[Shard], token: str) -> None:
    """UsageError if two of these are one store: what is written to one is found in the other."""
    names = {f"{PROBE}{token}-{shard.index}": shard for shard in shards}

    async def found_on(shard: Shard) -> set[str]:
        documents = await shard.hint(lambda it: it.documents(SHARD_MAP), None) or []
        return {document.name for document in documents} & names.keys()

    try:
        for name, shard in names.items():
            await shard.hint(lambda it, name=name: it.save_document(SHARD_MAP, name, token), None)  # type: ignore[misc]
        for shard in shards:
            for name in sorted(await found_on(shard)):
                if names[name] is not shard:
                    raise UsageError(
                        f"{names[name].name} and {shard.name} are the same queue",
                        hint="each shard is a server, database or namespace of its own",
                    )
    finally:
        for name, shard in names.items():
            with contextlib.suppress(QueueUnavailable):
                await shard.ask(lambda it, name=name: _forget(it, name))  # type: ignore[misc]


async def _forget(queue: Queue, name: str) -> None:
    if (known := await queue.document(SHARD_MAP, name)) is not None:
        await queue.compare_and_swap(SHARD_MAP, name, None, known.version)
