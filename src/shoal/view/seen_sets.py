"""Seen-sets: found by their name, and URLs in them."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.core.url import UrlNormalizer, request_digest
from shoal.errors import InvalidUrl, UsageError
from shoal.queue.base import Queue, SeenSet
from shoal.sources.start_task import start_task
from shoal.sources.url_text import with_scheme


async def require_seen_set(queue: Queue, name: str) -> SeenSet:
    """The set of this name; UsageError where there is none."""
    known = await queue.seen_sets()
    for found in known:
        if found.name == name:
            return found
    names = ", ".join(it.name for it in known[:5])
    raise UsageError(
        f"there is no seen-set {name}", hint=f"there are: {names}" if names else "runs with --seen NAME make one"
    )


def digests_of_urls(urls: Sequence[str], rewrite: UrlNormalizer | None = None) -> list[bytes]:
    """What a seen-set knows these URLs by; UsageError for what is not a URL."""
    digests = []
    for text in urls:
        try:
            digests.append(request_digest(start_task(with_scheme(text), rewrite=rewrite).url))
        except InvalidUrl as error:
            raise UsageError(f"{text!r} is not a URL to fetch: {error}", hint="https://…") from error
    return digests
