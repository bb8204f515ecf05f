"""Pace: how fast a host wants to be asked, learned from how it answers. Pure; each worker keeps one.

Workers do not talk to each other: each tells the queue a spacing, the last word counts, and every task
says which spacing it was handed out under. So a change is worked out from the spacing seen, never from
the one told before, and nobody changes it again before the last change is seen to be in force.
"""

from __future__ import annotations

from shoal.core.task import LaneChange
from shoal.politeness.answers import SLOW_DOWN

SLOWEST = 60.0  # seconds between two requests, at most; a longer crawl-delay is obeyed all the same
FIRST_REFUSED = 1.0  # the least spacing after a refusal
LEARNING = 5  # answers that make a host's own usual time
NOTABLE = 0.5  # seconds: whoever answers faster than that is not slow
RISEN = 2.5  # times the usual time
RISEN_FREELY = 4.0  # where nobody asked for any spacing it takes more
NOTABLE_FREELY = 1.0
SLOWER, FASTER, REFUSED = 1.5, 0.8, 2.0
GAP = 2.0  # seconds between two changes of a lane
SETTLING = 5.0  # seconds until a new spacing shows in how fast the host answers
PATIENCE = 15.0  # seconds until a change that is not seen in force is taken to have been overruled
REMEMBERED = 300.0  # seconds for which a spacing that was refused is not tried again
REMEMBERED_SLOW = 60.0  # or one at which the answers became slow
MAX_LANES = 10_000
_WEIGHT = 0.2  # of the newest answer in the recent time
_FUTILE = 2  # times in a row that going slower did not help
_NEARLY = 1.01  # the queue rounds
_NOTHING = 0.02  # a spacing as short as that is none


class _Lane:
    __slots__ = (
        "before",
        "futile",
        "good",
        "limit",
        "recent",
        "seen",
        "since",
        "since_at",
        "slow",
        "spacing",
        "told",
        "told_at",
        "too_fast",
        "too_fast_until",
        "unmoved",
        "usual",
    )

    def __init__(self, spacing: float, now: float) -> None:
        self.spacing = spacing  # in force, as far as we know
        self.since = 0  # answers under it
        self.since_at = now  # when the first of those requests was sent
        self.seen = 0  # answers, ever
        self.good = 0  # fast ones in a row under this spacing
        self.usual = 0.0  # seconds an answer takes when the host is at its best
        self.recent = 0.0  # seconds an answer takes now
        self.slow = 0.0  # the recent time when we last went slower for it
        self.futile = 0
        self.told: float | None = None  # the last spacing we asked for
        self.told_at = 0.0
        self.before = 0.0  # what was in force then
        self.unmoved = False  # it has not changed since
        self.too_fast = 0.0  # a spacing that did not do
        self.too_fast_until = 0.0
        self.limit = 0.0  # a spacing that others insist on


class Adaptive:
    """The pace of every host this worker has answers from."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    def saw(
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
        if spacing != known.spacing and not _moved(known, spacing, now - seconds):
            return None
        if status != 200 and not 200 <= status < 300:
            known.good = 0 if status in SLOW_DOWN else known.good
            return _refused(known, now, floor) if status in SLOW_DOWN else None
        known.since += 1
        known.seen += 1
        if known.seen <= LEARNING:
            known.recent += (seconds - known.recent) / known.seen
            known.usual = known.recent
            return None
        # One answer that hangs is an accident; three in a row are not.
        recent = known.recent
        recent += _WEIGHT * (min(seconds, 5.0 * known.usual + 1.0) - recent)
        known.recent = recent
        if recent < known.usual:
            known.usual = recent
        elif recent > NOTABLE and recent > 1.5 * known.usual:
            known.good = 0
            return _slow(known, now, asked) if recent > RISEN * known.usual else None
        if spacing <= asked * _NEARLY or spacing <= floor * _NEARLY or spacing <= known.limit:
            return None  # nothing of it is of our making
        known.good += 1
        return _good(known, now, floor, asked) if known.good >= _enough(spacing) else None

    def _add(self, lane: str, spacing: float, now: float) -> _Lane:
        if len(self._lanes) >= MAX_LANES:
            del self._lanes[next(iter(self._lanes))]
        known = self._lanes[lane] = _Lane(spacing, now)
        return known


def learned(lane: str, told: float, *, spacing: float, status: int, floor: float = 0.0) -> LaneChange:
    """What `saw` said, as the queue and people are to hear it."""
    if told <= floor:
        return LaneChange(lane, spacing=told, reason="crawl-delay" if floor else "")
    if told < spacing:
        return LaneChange(lane, spacing=told, reason="getting faster again")
    return LaneChange(lane, spacing=told, reason=f"{status}" if status in SLOW_DOWN else "slow answers")


def _moved(known: _Lane, spacing: float, sent: float) -> bool:
    """The spacing has changed; False for an answer to a request from before the change."""
    if sent < known.since_at:
        return False
    known.spacing, known.since, known.since_at, known.good = spacing, 0, sent, 0
    known.unmoved = False
    return True


def _may_change(known: _Lane, now: float, least: float = 0.0) -> bool:
    """Whether our last change has been seen in force, or overruled; and some time has passed."""
    if known.told is None:
        return True
    waited = now - known.told_at
    if waited < GAP:
        return False
    if known.told > known.before:
        return known.spacing * _NEARLY >= known.told or waited > PATIENCE
    return known.spacing <= max(known.told, least) * _NEARLY or waited > PATIENCE


def _tell(known: _Lane, spacing: float, now: float) -> float:
    known.told, known.told_at, known.before = round(spacing, 3), now, known.spacing
    known.good, known.unmoved = 0, True
    return known.told


def _refused(known: _Lane, now: float, floor: float) -> float | None:
    """429 or 503: twice as slow."""
    target = min(max(known.spacing * REFUSED, FIRST_REFUSED, floor), max(SLOWEST, floor))
    known.too_fast, known.too_fast_until = known.spacing, now + REMEMBERED
    if target <= known.spacing * _NEARLY or not _may_change(known, now):
        return None
    return _tell(known, target, now)


def _slow(known: _Lane, now: float, asked: float) -> float | None:
    """The recent answers took much longer than usual: slower, as long as that helps."""
    free = known.spacing <= _NOTHING and asked <= _NOTHING
    if free and (known.recent < NOTABLE_FREELY or known.recent < RISEN_FREELY * known.usual):
        return None
    if known.since < LEARNING or now - known.since_at < SETTLING or not _may_change(known, now):
        return None
    known.futile = known.futile + 1 if known.slow and known.recent > 0.9 * known.slow else 0
    if free:
        target = min(max(SLOWER * (now - known.since_at) / known.since, 0.05), FIRST_REFUSED)
    else:
        # At twice the time of an answer the host is idle half the time: it is not our haste.
        target = min(known.spacing * SLOWER, 2.0 * known.recent, SLOWEST)
    if known.futile >= _FUTILE or target <= known.spacing * _NEARLY:
        known.usual, known.slow, known.futile = known.recent, 0.0, 0
        return None
    known.slow = known.recent
    if now > known.too_fast_until - REMEMBERED_SLOW:
        known.too_fast, known.too_fast_until = known.spacing, now + REMEMBERED_SLOW
    return _tell(known, target, now)


def _good(known: _Lane, now: float, floor: float, asked: float) -> float | None:
    """A run of fast answers: a little faster, down to what is asked for."""
    least = max(floor, asked, known.limit)
    if now - known.since_at < 2 * SETTLING or not _may_change(known, now, least):
        return None
    known.slow, known.futile = 0.0, 0
    if known.unmoved and known.told is not None and known.told < known.spacing:
        # We told the queue to go faster and it did not: another run asks for this pace.
        known.limit = known.spacing
        return _tell(known, floor, now)
    target = known.spacing * FASTER
    if now < known.too_fast_until:
        target = max(target, known.too_fast * 1.25)
        if target >= known.spacing / _NEARLY:
            return None
    return _tell(known, floor if target <= max(least * _NEARLY, _NOTHING) else target, now)


def _enough(spacing: float) -> float:
    """How many fast answers in a row make it faster: about ten seconds of them."""
    return min(10.0, max(1.0, 10.0 / spacing)) if spacing > 0 else 10.0
