"""Health: a host that keeps failing is parked, probed, released, and given up where it stays down. Pure.

well ─▶ failing (some requests in a row got no answer) ─▶ parked ─▶ probed ─┬▶ well: one answer is enough
                                                            ▲              │
                                                            └─ twice as long ┴▶ hopeless: its tasks are
                                                                               given up unasked, but for
                                                                               one a minute that probes
An answer of any status is a sign of life. Refusals (403 after success) park a host too, but only so
often: whoever still says no then has said it.
"""

from __future__ import annotations

import msgspec

from shoal.core.task import LaneChange

FAILURES = 5  # in a row, before a host is parked
TASKS = 2  # different ones among them: one page alone does not condemn its host
FIRST_PARK, LONGEST_PARK = 5.0, 900.0
HOPELESS = 4  # failed probes in a row, after some 75 s
HOPELESS_ALONE = 8  # where nobody else has answered since either: it may be our own network
PROBE_EVERY = 60.0  # seconds, of a hopeless host
HOPELESS_PARK = 0.1  # its tasks must be handed out to be given up, but it goes on being shown as parked
# Seconds after a park until a host counts as released by another worker: where the queue says that it is
# not parked (and no request from before can be under way any more), and where that is not known.
LATE, STALE = 60.0, 900.0
FORBIDDEN = 20  # 403 in a row
FIRST_BAN, MOST_BANS = 60.0, 3
MAX_LANES = 10_000

# What failed is the host and not the page; and how people are told.
_OF_THE_HOST = {
    "dns": "could not find its address",
    "connect": "could not connect",
    "tls": "failed in the TLS handshake",
    "timeout.connect": "could not connect in time",
    "timeout.headers": "got no answer in time",
}
_MAYBE_THE_PAGE = frozenset({"timeout.headers"})  # counted only if every one is of another page
_NO_WORD = frozenset({429, *range(500, 600)})  # on whether it still forbids


class Hopeless(msgspec.Struct, frozen=True, gc=False):
    cause: str  # what its requests failed with
    reason: str  # for people


class _Patient:
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
    __slots__ = ("banned", "in_a_row", "until")

    def __init__(self) -> None:
        self.in_a_row = 0
        self.banned = 0  # times
        self.until = 0.0  # not 0: parked for it, and not yet released


class Health:
    """How the hosts of this worker are.

    probe: how often in a row the task's lane has been parked when it was handed out, by whichever worker;
    0 is not at all, None is not known.
    """

    def __init__(self) -> None:
        self._patients: dict[str, _Patient] = {}
        self._bans: dict[str, _Ban] = {}
        self._well: dict[str, None] = {}  # have answered with success
        self._answered_at: float | None = None  # when any host last did

    def failed(
        self, lane: str, *, task: int, cause: str, now: float, probe: int | None = None
    ) -> LaneChange | None:
        """A request got no answer. What is to become of its lane?"""
        if cause not in _OF_THE_HOST:
            return None
        patient = self._patients.get(lane)
        if patient is None:
            patient = self._admit(lane, now)
        if now < patient.parked_until:
            return None  # it was under way when the lane was parked
        if patient.probes and not probe:
            if now > patient.parked_until + (LATE if probe == 0 else STALE):
                patient = self._admit(lane, now)
            elif probe == 0:
                return None
        patient.failures += 1
        patient.cause = cause
        if len(patient.tasks) < FAILURES:
            patient.tasks.add(task)
        patient.probes = max(patient.probes, probe or 0)
        if patient.probes:
            patient.probes += 1
            patient.last_probe = now
        elif patient.failures >= FAILURES and len(patient.tasks) >= _needed(cause):
            patient.probes = 1
        else:
            return None
        seconds = min(FIRST_PARK * 2.0 ** min(patient.probes - 1, 10), LONGEST_PARK)
        if self._is_hopeless(patient):
            seconds = HOPELESS_PARK
        patient.parked_until = now + seconds
        return LaneChange(lane, park_for=seconds, reason=_reason(patient))

    def answered(self, lane: str, *, status: int, now: float, probe: int | None = None) -> LaneChange | None:
        """A request got an answer, of whatever status."""
        self._answered_at = now
        if status < 400 and not self._patients and not self._bans and not probe and lane in self._well:
            return None
        patient, ban = self._patients.pop(lane, None), self._bans.get(lane)
        release = bool(probe or (patient and patient.probes))
        if status == 403 and lane in self._well:
            return self._forbidden(lane, now, release)
        if status < 400:
            self._greet(lane)
            release = release or bool(ban and ban.until)
            self._bans.pop(lane, None)
        elif ban is not None and status not in _NO_WORD:
            ban.in_a_row = 0
        return LaneChange(lane, park_for=0.0) if release else None

    def hopeless(self, lane: str, *, now: float, probe: int | None = None) -> Hopeless | None:
        """Why a task of this lane is not worth a request; None if it is, or is to be the next probe."""
        if not self._patients or (patient := self._patients.get(lane)) is None:
            return None
        patient.probes = max(patient.probes, probe or 0)
        if not self._is_hopeless(patient):
            return None
        if now - patient.last_probe >= PROBE_EVERY:
            patient.last_probe = now
            return None
        return Hopeless(patient.cause, f"given up without asking: {_reason(patient)}")

    def _is_hopeless(self, patient: _Patient) -> bool:
        answered = self._answered_at
        ours = answered is not None and answered < patient.since
        return patient.probes > (HOPELESS_ALONE if ours else HOPELESS)

    def _forbidden(self, lane: str, now: float, release: bool) -> LaneChange | None:
        ban = self._bans.get(lane)
        if ban is None:
            if len(self._bans) >= MAX_LANES:
                del self._bans[next(iter(self._bans))]
            ban = self._bans[lane] = _Ban()
        if now < ban.until:
            return None  # it was under way when the lane was parked
        release = release or ban.until > 0
        ban.until = 0.0
        ban.in_a_row += 1
        if ban.in_a_row < FORBIDDEN or ban.banned >= MOST_BANS:
            return LaneChange(lane, park_for=0.0) if release else None
        seconds = FIRST_BAN * 2.0**ban.banned
        ban.in_a_row, ban.banned, ban.until = 0, ban.banned + 1, now + seconds
        return LaneChange(lane, park_for=seconds, reason=f"{FORBIDDEN} × 403 in a row")

    def _admit(self, lane: str, now: float) -> _Patient:
        if len(self._patients) >= MAX_LANES:
            del self._patients[next(iter(self._patients))]
        patient = self._patients[lane] = _Patient(now)
        return patient

    def _greet(self, lane: str) -> None:
        if lane not in self._well:
            if len(self._well) >= MAX_LANES:
                del self._well[next(iter(self._well))]
            self._well[lane] = None


def _needed(cause: str) -> int:
    return FAILURES if cause in _MAYBE_THE_PAGE else TASKS


def _reason(patient: _Patient) -> str:
    return f"{patient.failures} requests in a row {_OF_THE_HOST[patient.cause]}"
