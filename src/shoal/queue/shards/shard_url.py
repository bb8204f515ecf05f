"""The URL of a sharded queue: `shards:` and the URLs of its queues, separated by commas; the first is its home."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from shoal.core.queue_url import MAX_SHARDS, SHARDS, split_urls
from shoal.errors import UsageError

EXAMPLE = "shards:redis://a:6379/0,redis://b:6379/0"
_LOGIN = re.compile(r"(?<=://)[^/?#]*@")


def shard_urls(url: str) -> list[str]:
    """The URLs of the shards, in their order; UsageError where that is not what it says."""
    urls = split_urls(url)
    if not all("://" in part for part in urls):
        raise UsageError("a sharded queue is a list of queue URLs, separated by commas", hint=EXAMPLE)
    if len(urls) > MAX_SHARDS:
        raise UsageError(f"{len(urls)} shards are too many: at most {MAX_SHARDS}", hint="use larger servers")
    if len({shard_name(part) for part in urls}) < len(urls):
        raise UsageError(
            "the same queue is named twice among the shards",
            hint="each shard is a server, database or namespace of its own",
        )
    if any(part.startswith(("amqp:", "amqps:", SHARDS)) for part in urls):
        raise UsageError("a shard is a Redis, PostgreSQL, SQLite or shoal server's queue", hint=EXAMPLE)
    return urls


def shard_name(url: str) -> str:
    """A shard as people and documents name it: its URL without user and password."""
    return _LOGIN.sub("", url)


def with_login(name: str, known: Sequence[str]) -> str:
    """The URL of a shard that is only known by name: it takes the login of the home shard, where that has one."""
    mine = {shard_name(url): url for url in known}
    if name in mine:
        return mine[name]
    login = _LOGIN.search(known[0])
    if login is None or urlsplit(name).scheme != urlsplit(known[0]).scheme:
        return name
    scheme, _, rest = name.partition("://")
    return f"{scheme}://{login[0]}{rest}"
