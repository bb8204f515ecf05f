"""Start tasks: a URL as somebody wrote it becomes a task."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from shoal.core.routes import Routes
from shoal.core.sitemap import SITEMAP, is_marked, sitemap_of, unmarked
from shoal.core.task import Task, built_in_digest
from shoal.core.url import UrlNormalizer, canonical, lane_of, problem, request_digest
from shoal.errors import InvalidUrl

# What copying leaves at the ends of a line.
_PASTED_WHITESPACE = " \t\r\n\f\v\u00a0\u200b\u200e\u200f\u2028\u2029\u2060\ufeff"
_has_several_urls = re.compile(r"\shttps?://", re.IGNORECASE).search


def start_task(
    line: str,
    *,
    rewrite: UrlNormalizer | None = None,
    meta: dict[str, Any] | None = None,
    revisit: bool = False,
    routes: Routes | None = None,
) -> Task:
    """The task for a URL as somebody wrote it; raises InvalidUrl with a reason in a few words."""
    is_sitemap = is_marked(line)
    text = unmarked(line).strip(_PASTED_WHITESPACE)
    if _has_several_urls(text):
        raise InvalidUrl("several URLs on one line", hint="Put each on its own line.")
    try:
        url = canonical(text)
    except InvalidUrl as error:
        raise InvalidUrl(problem(text), hint=error.hint) from None
    if rewrite:
        url = rewrite(url)
    if is_sitemap:  # read again in every run, whatever a seen-set has: it is asked for what is new
        url = sitemap_of(url)
        digest = built_in_digest(SITEMAP, request_digest(url))
        task = Task(url=url, lane=lane_of(url), digest=digest, kind=SITEMAP, meta=meta, revisit=True)
    else:
        task = Task(url=url, lane=lane_of(url), digest=request_digest(url), meta=meta, revisit=revisit)
    return routes.admit(task) if routes else task


def start_tasks(
    urls: Iterable[str], *, rewrite: UrlNormalizer | None = None, revisit: bool = False, routes: Routes | None = None
) -> tuple[list[Task], list[tuple[str, str]]]:
    """Tasks for start URLs, each once, and what was rejected with the reason."""
    tasks: dict[str, Task] = {}
    rejected: list[tuple[str, str]] = []
    for line in urls:
        try:
            task = start_task(line, rewrite=rewrite, revisit=revisit, routes=routes)
        except InvalidUrl as error:
            rejected.append((line, str(error)))
            continue
        tasks.setdefault(f"{task.kind} {task.url}", task)
    return list(tasks.values()), rejected
