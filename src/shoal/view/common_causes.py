"""Common causes: what many dead letters of a run have failed for, who is to blame, and what to do about it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.block_page import BLOCK_PAGE
from shoal.core.counters import CODE_ERRORS, error_class
from shoal.core.task import UNACKNOWLEDGED
from shoal.queue.base import DeadLetterGroup
from shoal.runs.progress import describe_cause
from shoal.view.dead_letters import count_by_cause
from shoal.view.formatting import clean, count
from shoal.view.recommendation import Recommendation, RecommendedStep, run_step
from shoal.view.run_state import is_shared
from shoal.view.snapshot import RunSnapshot, Snapshot

LARGE_SHARE, MIN_DEAD_LETTERS = 0.1, 5  # a cause is large that so large a share of the dead letters has, and so many
MAX_CAUSES, MAX_HOSTS = 10, 5  # of one run, and of one cause
TRANSIENT_CAUSES = ("timeout", "connect", "dns", "http.5xx", "http.429", "tls", "worker_lost")
PERMANENT_CAUSES = ("http.404", "robots", "refused")
# Where the worker says that it was raised: the last of the message (worker/task/failure.py).
_LOCATION = re.compile(r"\(([^()\s]{1,200}):(\d{1,9})\)\s*\Z").search


class CommonCause(msgspec.Struct, frozen=True):
    """What many pages of a run failed for."""

    snapshot: RunSnapshot
    cause: str
    count: int
    dead: int  # of the run
    groups: Sequence[DeadLetterGroup]  # of this cause, by host

    @property
    def message(self) -> str:
        return next((group.message for group in self.groups if group.message not in ("", self.cause)), "")

    @property
    def hosts(self) -> list[str]:
        return sorted({group.lane for group in self.groups})

    @property
    def location(self) -> tuple[str, int] | None:
        """File and line of the user's code that raised it."""
        found = _LOCATION(self.message)
        return (found[1], int(found[2])) if found else None

    @property
    def title_start(self) -> str:
        """Of very many only some were looked at."""
        about = "" if sum(group.count for group in self.groups) == self.count else "About "
        return f"{about}{count(self.count, 'page')} of run {clean(self.snapshot.run.name)} failed"

    @property
    def figures(self) -> dict[str, Any]:
        return {
            "cause": self.cause,
            "count": self.count,
            "dead": self.dead,
            "hosts": self.hosts[:MAX_HOSTS],
            "sample": self.groups[0].sample,
            "last_at": max(group.last_at for group in self.groups),
        }


def common_causes(snapshot: Snapshot, dead: Mapping[str, Sequence[DeadLetterGroup]]) -> Iterator[Recommendation]:
    """Every large cause, the largest of each run first."""
    for one in snapshot.runs:
        groups = dead.get(one.run.name, ())
        causes = count_by_cause(groups)
        looked = sum(causes.values())
        total = max(one.stats.dead, looked)
        for cause, number in sorted(causes.items(), key=lambda pair: -pair[1])[:MAX_CAUSES]:
            number = round(number * total / looked)  # of very many only some were looked at
            if number >= MIN_DEAD_LETTERS and number >= LARGE_SHARE * total:
                found = CommonCause(one, cause, number, total, [group for group in groups if group.cause == cause])
                yield _code_error(found) if error_class(cause) in CODE_ERRORS else _page_failure(found)


def _code_error(found: CommonCause) -> Recommendation:
    """The host did its part: it is neither named as the reason nor to be parked."""
    one = found.snapshot
    location, message = found.location, clean(found.message) or describe_cause(found.cause)
    place = f"{clean(location[0])} line {location[1]}" if location else "the scraper's code"
    restart = "restart its workers, then revive" if is_shared(one.run) else "revive, then run the same command again"
    steps = [_see_step(found)]
    if one.run.can_revive:
        steps.append(_revive_step(found, f"fix {place}, {restart}"))
    return Recommendation(
        "code_error",
        "act" if one.run.state == "running" else "watch",
        f"{found.title_start} in {place}",
        f"{message}, for example at {clean(found.groups[0].sample)};"
        f" the code is at fault, not the site; {count(found.dead)} failed in all",
        found.figures
        | {"message": message, "file": location[0] if location else None, "line": location[1] if location else None},
        run=one.run.name,
        actions=tuple(steps),
    )


def _page_failure(found: CommonCause) -> Recommendation:
    one, kind, hosts = found.snapshot, error_class(found.cause), found.hosts
    where = clean(hosts[0]) if len(hosts) == 1 else count(len(hosts), "host")
    steps = [_see_step(found)]
    if not is_permanent(found.cause) and one.run.can_revive:
        steps.append(_revive_step(found, _revive_words(found.cause, kind)))
    message = f": {clean(found.message)}" if found.message else ""
    return Recommendation(
        "common_cause",
        "watch" if kind in PERMANENT_CAUSES or one.run.state != "running" else "act",
        f"{found.title_start} for the same reason",
        f"{describe_cause(found.cause)} at {where}{message}; {count(found.dead)} failed in all",
        found.figures,
        run=one.run.name,
        host=hosts[0] if len(hosts) == 1 else "",
        actions=tuple(steps),
    )


def is_permanent(cause: str) -> bool:
    """Whether trying again would end the same way."""
    return error_class(cause) in PERMANENT_CAUSES


def _revive_words(cause: str, kind: str) -> str:
    if cause == "expired":
        return "start more workers, ask the host faster, or give them a longer TTL (routes); then requeue them"
    if cause == BLOCK_PAGE:
        return "requeue them when the site lets you in again, with another exit or a browser (--on-block)"
    if cause == UNACKNOWLEDGED:
        return 'requeue them; with ack="manual" they would not have been lost with their workers'
    return f"requeue them {'when it responds again' if kind in TRANSIENT_CAUSES else 'when the cause is fixed'}"


def _see_step(found: CommonCause) -> RecommendedStep:
    name = clean(found.snapshot.run.name)
    return RecommendedStep("see them", f"shoal dead {name} --list --where {_where(found)}")


def _revive_step(found: CommonCause, words: str) -> RecommendedStep:
    run = found.snapshot.run.name
    return run_step(words, run, "revive", {"cause": found.cause}, f" --where {_where(found)}")


def _where(found: CommonCause) -> str:
    return shlex.quote(f"cause={clean(found.cause)}")
