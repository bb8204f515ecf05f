"""Failing: how often a URL failed for good, over runs; what is remembered of that, and for how long."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.core.task import RequestOptions

FAILING = "failing"  # the reason for which a link or start URL is skipped that failed too often before
KEPT_SECONDS = 90 * 86_400.0  # so long after its last failure a URL's are forgotten
MAX_REMEMBERED = 100_000  # of the last failures of a queue; a URL that has none among them is forgotten
MAX_CAUSES = 8  # told apart for one URL; further ones are summed under OTHER
MAX_CAUSE_LETTERS = 100
OTHER = "other"
_NOT_A_PAGE = "task:"  # typed tasks are named like this: a key without a page behind it


def is_counted(url: str, options: RequestOptions | None) -> bool:
    """Whether failures of such a task are failures of its URL: what is sent to a form says nothing of the next."""
    return not url.startswith(_NOT_A_PAGE) and (options is None or (options.method == "GET" and options.body is None))


def with_failure(causes: Mapping[str, int], cause: str) -> dict[str, int]:
    """What is remembered of a URL, with one more failure."""
    cause = cause[:MAX_CAUSE_LETTERS]
    name = cause if cause in causes or len(causes) < MAX_CAUSES else OTHER
    return {**causes, name: causes.get(name, 0) + 1}
