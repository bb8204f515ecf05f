"""HostHealth: a host that keeps failing is parked, probed, released, and given up where it stays down. Pure.

healthy ─▶ failing (several requests got no answer) ─▶ parked ─▶ probed ─┬▶ healthy: one answer is enough
                                                            ▲              │
                                                            └─ twice as long ┴▶ down: its tasks are
                                                                               given up unasked, but for
                                                                               one a minute that probes
An answer of any status is a sign of life. Refusals (403 after success) park a host too, but only so
often: whoever still says no then has said it.
"""

from __future__ import annotations

import msgspec

from shoal.core.task import LaneChange

FAILURES_TO_PARK = 5  # in a row, before a host is parked
MIN_FAILED_TASKS = 2  # different ones among them: one page alone does not condemn its host
FIRST_PARK, MAX_PARK = 5.0, 900.0
DOWN_AFTER_PROBES = 4  # failed probes in a row, after some 75 s
DOWN_AFTER_PROBES_OFFLINE = 8  # where nobody else has answered since either: it may be our own network
DOWN_PROBE_INTERVAL = 60.0  # seconds, of a host that is down
DOWN_PARK = 0.1  # its tasks must be handed out to be given up, but it goes on being shown as parked
# Seconds after a park until a host counts as released by another worker: where the queue says that it is
# not parked (and no request from before can be in progress any more), and where that is not known.
RELEASED_AFTER, RELEASED_AFTER_UNKNOWN = 60.0, 900.0
FORBIDDEN_TO_PARK = 20  # 403 in a row
FIRST_FORBIDDEN_PARK, MAX_FORBIDDEN_PARKS = 60.0, 3
MAX_LANES = 10_000

# What failed is the host and not the page; and how people are told.
_HOST_CAUSES = {
    "dns": "could not find its address",
    "connect": "could not connect",
    "tls": "failed in the TLS handshake",
    "timeout.connect": "could not connect in time",
    "timeout.headers": "got no answer in time",
}
_HOST_OR_PAGE_CAUSES = frozenset({"timeout.headers"})  # counted only if every one is of another page
_INCONCLUSIVE_STATUSES = frozenset({429, *range(500, 600)})  # on whether it still forbids


class HostDown(msgspec.Struct, frozen=True, gc=False):
    cause: str  # what its requests failed with
    reason: str  # for people


class _FailingHost:
    __slots__ = ("cause", "failures", "last_probe", "parked_until", "probes", "since", "tasks")

    def __init__(self, now: float) -> None:
        self.failures = 0  # in a row
        self.since = now
        self.tasks: set[int] = set()
        self.cause = ""
        self.probes = 0  # that failed, in a row
        self.parked_until = 0.0
        self.last_probe = now


class _Ban:
    __slots__ = ("banned", "consecutive", "until")

    def __init__(self) -> None:
        self.consecutive = 0
        self.banned = 0  # times
        self.until = 0.0  # not 0: parked for it, and not yet released


class HostHealth:
    """How the hosts of this worker are.

    probe: how often in a row the task's lane has been parked when it was handed out, by whichever worker;
    0 is not at all, None is not known.
    """

    def __init__(self) -> None:
        self._failing: dict[str, _FailingHost] = {}
        self._bans: dict[str, _Ban] = {}
        self._healthy: dict[str, None] = {}  # have answered with success
        self._answered_at: float | None = None  # when any host last did

    def record_failure(
        self, lane: str, *, task: int, cause: str, now: float, probe: int | None = None
    ) -> LaneChange | None:
        """A request got no answer. What is to become of its lane?"""
        if cause not in _HOST_CAUSES:
            return None
        host = self._failing.get(lane)
        if host is None:
            host = self._add_failing(lane, now)
        if now < host.parked_until:
            return None  # it was in progress when the lane was parked
        if host.probes and not probe:
            if now > host.parked_until + (RELEASED_AFTER if probe == 0 else RELEASED_AFTER_UNKNOWN):
                host = self._add_failing(lane, now)
            elif probe == 0:
                return None
        host.failures += 1
        host.cause = cause
        if len(host.tasks) < FAILURES_TO_PARK:
            host.tasks.add(task)
        host.probes = max(host.probes, probe or 0)
        if host.probes:
            host.probes += 1
            host.last_probe = now
        elif host.failures >= FAILURES_TO_PARK and len(host.tasks) >= _tasks_needed(cause):
            host.probes = 1
        else:
            return None
        seconds = min(FIRST_PARK * 2.0 ** min(host.probes - 1, 10), MAX_PARK)
        if self._is_down(host):
            seconds = DOWN_PARK
        host.parked_until = now + seconds
        return LaneChange(lane, park_for=seconds, reason=_reason(host))

    def record_response(self, lane: str, *, status: int, now: float, probe: int | None = None) -> LaneChange | None:
        """A request got an answer, of whatever status."""
        self._answered_at = now
        if status < 400 and not self._failing and not self._bans and not probe and lane in self._healthy:
            return None
        host, ban = self._failing.pop(lane, None), self._bans.get(lane)
        release = bool(probe or (host and host.probes))
        if status == 403 and lane in self._healthy:
            return self._forbidden(lane, now, release)
        if status < 400:
            self._mark_healthy(lane)
            release = release or bool(ban and ban.until)
            self._bans.pop(lane, None)
        elif ban is not None and status not in _INCONCLUSIVE_STATUSES:
            ban.consecutive = 0
        return LaneChange(lane, park_for=0.0) if release else None

    def down_reason(self, lane: str, *, now: float, probe: int | None = None) -> HostDown | None:
        """Why a task of this lane is not worth a request; None if it is, or is to be the next probe."""
        if not self._failing or (host := self._failing.get(lane)) is None:
            return None
        host.probes = max(host.probes, probe or 0)
        if not self._is_down(host):
            return None
        if now - host.last_probe >= DOWN_PROBE_INTERVAL:
            host.last_probe = now
            return None
        return HostDown(host.cause, f"failed without a request: {_reason(host)}")

    def _is_down(self, host: _FailingHost) -> bool:
        answered = self._answered_at
        ours = answered is not None and answered < host.since
        return host.probes > (DOWN_AFTER_PROBES_OFFLINE if ours else DOWN_AFTER_PROBES)

    def _forbidden(self, lane: str, now: float, release: bool) -> LaneChange | None:
        ban = self._bans.get(lane)
        if ban is None:
            if len(self._bans) >= MAX_LANES:
                del self._bans[next(iter(self._bans))]
            ban = self._bans[lane] = _Ban()
        if now < ban.until:
            return None  # it was in progress when the lane was parked
        release = release or ban.until > 0
        ban.until = 0.0
        ban.consecutive += 1
        if ban.consecutive < FORBIDDEN_TO_PARK or ban.banned >= MAX_FORBIDDEN_PARKS:
            return LaneChange(lane, park_for=0.0) if release else None
        seconds = FIRST_FORBIDDEN_PARK * 2.0**ban.banned
        ban.consecutive, ban.banned, ban.until = 0, ban.banned + 1, now + seconds
        return LaneChange(lane, park_for=seconds, reason=f"{FORBIDDEN_TO_PARK} × 403 in a row")

    def _add_failing(self, lane: str, now: float) -> _FailingHost:
        if len(self._failing) >= MAX_LANES:
            del self._failing[next(iter(self._failing))]
        host = self._failing[lane] = _FailingHost(now)
        return host

    def _mark_healthy(self, lane: str) -> None:
        if lane not in self._healthy:
            if len(self._healthy) >= MAX_LANES:
                del self._healthy[next(iter(self._healthy))]
            self._healthy[lane] = None


def _tasks_needed(cause: str) -> int:
    return FAILURES_TO_PARK if cause in _HOST_OR_PAGE_CAUSES else MIN_FAILED_TASKS


def _reason(host: _FailingHost) -> str:
    requests = "request" if host.failures == 1 else f"{host.failures} requests"
    return f"the last {requests} {_HOST_CAUSES[host.cause]}"
