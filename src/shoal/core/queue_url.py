"""Queue URL: how a queue is named. Several URLs, in a list or with commas between them, are one sharded queue."""

from __future__ import annotations

import re

from shoal.core import units

SHARDS = "shards:"
MAX_SHARDS = 32
# Only a comma before a scheme separates: a URL may have others, such as those between hosts.
_SEPARATOR = re.compile(r"\s*,\s*(?=[a-z][a-z0-9+.-]*://)", re.IGNORECASE)
_BROKERS = ("amqp://", "amqps://")  # what follows in these is their ledger's


def queue_url(value: object) -> str:
    """A file or URL as people write it; several URLs become `shards:` and the URLs, the first of which is the home."""
    if isinstance(value, list | tuple):
        urls = [units.text(item) for item in value]
        if not urls or not all(urls):
            raise ValueError(value)
        return urls[0] if len(urls) == 1 else SHARDS + ",".join(urls)
    url = units.text(value)
    if url.startswith(_BROKERS):
        return url
    urls = split_urls(url)
    return SHARDS + ",".join(urls) if len(urls) > 1 or is_sharded(url) else url


def is_sharded(url: str) -> bool:
    return url.startswith(SHARDS)


def split_urls(url: str) -> list[str]:
    """The URLs of the shards, in their order; of any other queue its own."""
    return _SEPARATOR.split(url.removeprefix(SHARDS).strip())
