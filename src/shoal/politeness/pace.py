"""AdaptivePace: how fast a host wants to be asked, learned from how it answers. Pure; each worker keeps one.

Workers do not talk to each other: each tells the queue a spacing, the last word counts, and every task
says which spacing it was handed out under. So a change is worked out from the spacing seen, never from
the one told before, and nobody changes it again before the last change is seen to be in force.
"""

from __future__ import annotations

from shoal.core.task import LaneChange
from shoal.politeness.response_hints import THROTTLE_STATUSES

MAX_SPACING = 60.0  # seconds between two requests, at most; a longer crawl-delay is obeyed all the same
MIN_REFUSED_SPACING = 1.0  # the least spacing after a refusal
WARMUP_RESPONSES = 5  # answers that make a host's own usual time
MIN_SLOW_SECONDS = 0.5  # seconds: whoever answers faster than that is not slow
SLOW_FACTOR = 2.5  # times the usual time
SLOW_FACTOR_UNSPACED = 4.0  # where nobody asked for any spacing it takes more
MIN_SLOW_SECONDS_UNSPACED = 1.0
SLOWDOWN_FACTOR, SPEEDUP_FACTOR, REFUSED_FACTOR = 1.5, 0.8, 2.0
MIN_CHANGE_INTERVAL = 2.0  # seconds between two changes of a lane
SETTLE_SECONDS = 5.0  # seconds until a new spacing shows in how fast the host answers
CHANGE_TIMEOUT = 15.0  # seconds until a change that is not seen in force is taken to have been overruled
REFUSED_SPACING_TTL = 300.0  # seconds for which a spacing that was refused is not tried again
SLOW_SPACING_TTL = 60.0  # or one at which the answers became slow
MAX_LANES = 10_000
_WEIGHT = 0.2  # of the newest answer in the recent time
_MAX_FUTILE = 2  # times in a row that going slower did not help
_TOLERANCE = 1.01  # the queue rounds
_NEGLIGIBLE = 0.02  # a spacing as short as that is none


class _Lane:
    __slots__ = (
        "baseline", "cause", "fast_streak", "futile", "is_bounded", "is_unchanged", "limit", "previous", "recent",
        "requested", "requested_at", "since", "since_at", "slow", "spacing", "too_fast", "too_fast_until", "total",
    )  # fmt: skip

    def __init__(self, spacing: float, now: float) -> None:
        self.spacing = spacing  # in force, as far as we know
        self.since = 0  # answers under it
        self.since_at = now  # when the first of those requests was sent
        self.total = 0  # answers, ever
        self.fast_streak = 0  # fast ones in a row under this spacing
        self.baseline = 0.0  # seconds an answer takes when the host is at its best
        self.recent = 0.0  # seconds an answer takes now
        self.slow = 0.0  # the recent time when we last went slower for it
        self.futile = 0
        self.requested: float | None = None  # the last spacing we asked for
        self.requested_at = 0.0
        self.previous = 0.0  # what was in force then
        self.is_unchanged = False  # it has not changed since
        self.cause = ""  # of the last slow-down, for people
        self.is_bounded = False  # what was asked for last is as fast as what was refused lets us go
        self.too_fast = 0.0  # a spacing that did not do
        self.too_fast_until = 0.0
        self.limit = 0.0  # a spacing that others insist on


class AdaptivePace:
    """The pace of every host this worker has answers from."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    def observe(
        self,
        lane: str,
        *,
        seconds: float,
        status: int,
        spacing: float,
        now: float,
        floor: float = 0.0,
        asked: float = 0.0,
    ) -> float | None:
        """A new spacing for the queue to learn, 0 to forget it, or None where nothing is to change.

        spacing: in force when the task was handed out. floor: the host's crawl-delay, kept in the same
        place as what is learned here. asked: what the run asks for anyway.
        """
        known = self._lanes.get(lane)
        if known is None:
            known = self._add(lane, spacing, now - seconds)
        if spacing != known.spacing and not _spacing_changed(known, spacing, now - seconds):
            return None
        if status != 200 and not 200 <= status < 300:
            known.fast_streak = 0 if status in THROTTLE_STATUSES else known.fast_streak
            return _slow_down_refused(known, now, floor, status) if status in THROTTLE_STATUSES else None
        known.since += 1
        known.total += 1
        if known.total <= WARMUP_RESPONSES:
            known.recent += (seconds - known.recent) / known.total
            known.baseline = known.recent
            return None
        # One answer that hangs is an accident; three in a row are not.
        recent = known.recent
        recent += _WEIGHT * (min(seconds, 5.0 * known.baseline + 1.0) - recent)
        known.recent = recent
        if recent < known.baseline:
            known.baseline = recent
        elif recent > MIN_SLOW_SECONDS and recent > 1.5 * known.baseline:
            known.fast_streak = 0
            return _slow_down(known, now, asked) if recent > SLOW_FACTOR * known.baseline else None
        if spacing <= asked * _TOLERANCE or spacing <= floor * _TOLERANCE or spacing <= known.limit:
            return None  # nothing of it is of our making
        known.fast_streak += 1
        return _speed_up(known, now, floor, asked) if known.fast_streak >= _responses_needed(spacing) else None

    def recovery_reason(self, lane: str) -> str:
        """Why a host that is asked faster again is still slower than it might be; empty: we do not know."""
        known = self._lanes.get(lane)
        if known is None or not known.cause:
            return ""
        return (
            f"{known.cause} when it was asked faster" if known.is_bounded else f"speeding up again after {known.cause}"
        )

    def _add(self, lane: str, spacing: float, now: float) -> _Lane:
        if len(self._lanes) >= MAX_LANES:
            del self._lanes[next(iter(self._lanes))]
        known = self._lanes[lane] = _Lane(spacing, now)
        return known


def spacing_change(
    lane: str, requested: float, *, spacing: float, status: int, floor: float = 0.0, recovery: str = ""
) -> LaneChange:
    """What `observe` returned, as the queue and people are to hear it."""
    if requested <= floor:
        return LaneChange(lane, spacing=requested, reason="crawl-delay" if floor else "")
    if requested < spacing:
        return LaneChange(lane, spacing=requested, reason=recovery or "speeding up again")
    return LaneChange(lane, spacing=requested, reason=f"{status}" if status in THROTTLE_STATUSES else "slow answers")


def _spacing_changed(known: _Lane, spacing: float, sent: float) -> bool:
    """The spacing has changed; False for an answer to a request from before the change."""
    if sent < known.since_at:
        return False
    known.spacing, known.since, known.since_at, known.fast_streak = spacing, 0, sent, 0
    known.is_unchanged = False
    if spacing < known.limit:
        known.limit = 0.0  # whoever insisted on it is gone
    return True


def _may_change(known: _Lane, now: float, least: float = 0.0) -> bool:
    """Whether our last change has been seen in force, or overruled; and some time has passed."""
    if known.requested is None:
        return True
    waited = now - known.requested_at
    if waited < MIN_CHANGE_INTERVAL:
        return False
    if known.requested > known.previous:
        return known.spacing * _TOLERANCE >= known.requested or waited > CHANGE_TIMEOUT
    return known.spacing <= max(known.requested, least) * _TOLERANCE or waited > CHANGE_TIMEOUT


def _request_spacing(known: _Lane, spacing: float, now: float) -> float:
    known.requested, known.requested_at, known.previous = round(spacing, 3), now, known.spacing
    known.fast_streak, known.is_unchanged, known.is_bounded = 0, True, False
    return known.requested


def _slow_down_refused(known: _Lane, now: float, floor: float, status: int) -> float | None:
    """429 or 503: twice as slow."""
    target = min(max(known.spacing * REFUSED_FACTOR, MIN_REFUSED_SPACING, floor), max(MAX_SPACING, floor))
    known.too_fast, known.too_fast_until = known.spacing, now + REFUSED_SPACING_TTL
    if target <= known.spacing * _TOLERANCE or not _may_change(known, now):
        return None
    known.cause = str(status)
    return _request_spacing(known, target, now)


def _slow_down(known: _Lane, now: float, asked: float) -> float | None:
    """The recent answers took much longer than usual: slower, as long as that helps."""
    free = known.spacing <= _NEGLIGIBLE and asked <= _NEGLIGIBLE
    if free and (known.recent < MIN_SLOW_SECONDS_UNSPACED or known.recent < SLOW_FACTOR_UNSPACED * known.baseline):
        return None
    if known.since < WARMUP_RESPONSES or now - known.since_at < SETTLE_SECONDS or not _may_change(known, now):
        return None
    known.futile = known.futile + 1 if known.slow and known.recent > 0.9 * known.slow else 0
    if free:
        target = min(max(SLOWDOWN_FACTOR * (now - known.since_at) / known.since, 0.05), MIN_REFUSED_SPACING)
    else:
        # At twice the time of an answer the host is idle half the time: it is not our haste.
        target = min(known.spacing * SLOWDOWN_FACTOR, 2.0 * known.recent, MAX_SPACING)
    if known.futile >= _MAX_FUTILE or target <= known.spacing * _TOLERANCE:
        known.baseline, known.slow, known.futile = known.recent, 0.0, 0
        return None
    known.slow, known.cause = known.recent, "slow answers"
    if now > known.too_fast_until - SLOW_SPACING_TTL:
        known.too_fast, known.too_fast_until = known.spacing, now + SLOW_SPACING_TTL
    return _request_spacing(known, target, now)


def _speed_up(known: _Lane, now: float, floor: float, asked: float) -> float | None:
    """A run of fast answers: a little faster, down to what is asked for."""
    least = max(floor, asked, known.limit)
    if now - known.since_at < 2 * SETTLE_SECONDS or not _may_change(known, now, least):
        return None
    known.slow, known.futile = 0.0, 0
    if known.is_unchanged and known.requested is not None and known.requested < known.spacing:
        # We told the queue to go faster and it did not: another run asks for this pace.
        known.limit = known.spacing
        return _request_spacing(known, floor, now)
    target, bound = known.spacing * SPEEDUP_FACTOR, 0.0
    if now < known.too_fast_until:
        bound = known.too_fast * 1.25
        target = max(target, bound)
        if target >= known.spacing / _TOLERANCE:
            return None
    requested = _request_spacing(known, floor if target <= max(least * _TOLERANCE, _NEGLIGIBLE) else target, now)
    known.is_bounded = 0 < requested <= bound * _TOLERANCE
    return requested


def _responses_needed(spacing: float) -> float:
    """How many fast answers in a row make it faster: about ten seconds of them."""
    return min(10.0, max(1.0, 10.0 / spacing)) if spacing > 0 else 10.0
