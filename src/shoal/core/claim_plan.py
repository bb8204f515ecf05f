"""How a claim is divided between runs and lanes, decided without looking at any task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MIN_LANES_PER_BATCH = 16  # a batch is spread over at least so many lanes, if they are due
SLOT_HORIZON_US = 2_000_000  # µs: a claim may reserve slots so far ahead
UNLIMITED = 1 << 40
Turn = tuple[int, float, int]  # the least is next: the most urgent, then who had least for its weight, then the oldest
MAX_RUN_LEAD, MAX_LANE_LEAD = 64, 16  # what a run that had nothing to do may catch up, at most
YIELD_FRACTION = 4  # a slot nobody came for is free to all after so great a part of the spacing
OLDEST_PICK_EVERY = 16  # so that nothing waits for ever behind what is more urgent


@dataclass(slots=True)
class CandidateRun:
    """A run that this worker serves and that may get a part of the claim."""

    id: int
    weight: int
    share: float
    left: int  # how many it may still hand out
    priority: int = 0
    has_bands: bool = False  # it has, or had, tasks of more than one band
    due: list[int] = field(default_factory=list)  # lanes, soonest last
    needs: Sequence[int] = (0,)  # combinations of capabilities that the worker has; 0 are tasks without needs


class Competitor(NamedTuple):
    """A run that other workers serve and that wants slots of the same lane."""

    picks: float  # by weight
    priority: int


@dataclass(slots=True)
class Lane:
    id: int
    name: str
    next_at: int
    spacing: int
    free: int  # places in flight
    parked: int = 0  # times in a row
    given: int = 0  # tasks ever handed out here, of whatever run
    ready: dict[int, int] = field(default_factory=dict)  # by run
    picks: dict[int, int] = field(default_factory=dict)  # by run: tasks ever handed out here
    top_band: dict[int, int] = field(default_factory=dict)  # by run, where it has tasks of several bands
    competitors: Sequence[Competitor] = ()
    wanting: dict[int, Turn] = field(default_factory=dict)  # by run, as the plan goes on

    def open_slots(self, now: int) -> int:
        """How many more tasks it may start within the horizon."""
        first = max(self.next_at, now)
        if self.spacing == 0:
            return self.free if first <= now + SLOT_HORIZON_US else 0
        return max(0, min(self.free, (now + SLOT_HORIZON_US - first) // self.spacing + 1))

    def take_slot(self, now: int) -> int:
        slot = max(self.next_at, now)
        self.next_at = slot + self.spacing
        self.free -= 1
        self.given += 1
        return slot

    @property
    def is_oldest_turn(self) -> bool:
        """Whether the next task is the oldest of any run, where runs of several priorities want the lane."""
        return (self.given + 1) % OLDEST_PICK_EVERY == 0

    def must_yield(self, chosen: CandidateRun, now: int) -> bool:
        """Whether a slot is to be left to a run that other workers serve, for a moment."""
        rivals = self._rivals_of(chosen)
        if not rivals:
            return False
        if self.next_at > now:
            return True  # slots to come are not hoarded where others want them too
        mine = self.picks[chosen.id] / chosen.weight
        wanted = any(one.priority != chosen.priority or mine > one.picks for one in rivals)
        return wanted and now < self.next_at + self.spacing // YIELD_FRACTION

    def _rivals_of(self, chosen: CandidateRun) -> list[Competitor]:
        """Who comes before the chosen run: the more urgent, at the turn of the oldest the less urgent; and equals."""
        less = self.is_oldest_turn
        return [
            one
            for one in self.competitors
            if one.priority == chosen.priority or (one.priority < chosen.priority) == less
        ]


@dataclass(slots=True)
class LanePicks:
    """What a (run, lane) gives to a claim."""

    slots: list[int] = field(default_factory=list)
    oldest: int = 0  # so many of the tasks are its oldest, whatever their band


# The times of the oldest tasks of a (run, lane), oldest first; asked for where priorities differ.
OldestTasks = Callable[[int, int], Sequence[int]]


def plan_claim(
    now: int,
    candidates: Sequence[CandidateRun],
    known: Mapping[int, Lane],
    limit: int,
    oldest: OldestTasks = lambda run, lane: (),
) -> dict[tuple[int, int], LanePicks]:
    """The slots each (run, lane) gives to this claim. Changes shares, picks and lanes as it goes."""
    by_id = {run.id: run for run in candidates}
    _cap_lead(candidates, known, by_id)
    for run in candidates:  # lanes with urgent tasks first; the others as they come due
        run.due.sort(key=lambda lane: -known[lane].top_band.get(run.id, 0))
    for lane in known.values():
        wanting = [by_id[run] for run, ready in lane.ready.items() if ready > 0 and by_id[run].left > 0]
        lane.wanting = {run.id: _turn_in(lane, run) for run in wanting}
    chunk = max(1, -(-limit // min(len(known), MIN_LANES_PER_BATCH)))
    decided: dict[tuple[int, int], LanePicks] = {}
    turns = {run.id: _turn(run) for run in candidates if run.due and run.left > 0}
    while limit > 0 and turns:
        turn = by_id[min(turns.values())[2]]
        lane = known[turn.due.pop()]
        chosen, alone, of_all = _choose_run(turn, lane, by_id, decided, oldest)
        most = 0 if lane.must_yield(chosen, now) else min(chunk, limit) if alone else 1
        count = min(most, chosen.left, lane.open_slots(now), lane.ready[chosen.id])
        if count > 0:
            part = decided.setdefault((chosen.id, lane.id), LanePicks())
            part.slots.extend(lane.take_slot(now) for _ in range(count))
            before = lane.picks[chosen.id]
            turns_of_oldest = (before + count) // OLDEST_PICK_EVERY - before // OLDEST_PICK_EVERY
            part.oldest += max(turns_of_oldest, int(of_all))
            _count_picks(chosen, lane, known, count)
            limit -= count
            if lane.open_slots(now) > 0 and any(lane.ready.values()):
                turn.due.insert(0, lane.id)
        for run in (turn, chosen):
            if run.due and run.left > 0:
                turns[run.id] = _turn(run)
            else:
                turns.pop(run.id, None)
    return decided


def _turn(run: CandidateRun) -> Turn:
    return -run.priority, run.share, run.id


def _turn_in(lane: Lane, run: CandidateRun) -> Turn:
    return -run.priority, lane.picks[run.id] / run.weight, run.id


def _count_picks(chosen: CandidateRun, lane: Lane, known: Mapping[int, Lane], count: int) -> None:
    lane.ready[chosen.id] -= count
    lane.picks[chosen.id] += count
    chosen.left -= count
    chosen.share += count / chosen.weight
    if lane.ready[chosen.id] > 0:
        lane.wanting[chosen.id] = _turn_in(lane, chosen)
    else:
        lane.wanting.pop(chosen.id, None)
    if chosen.left <= 0:
        for other in known.values():
            other.wanting.pop(chosen.id, None)


def _choose_run(
    turn: CandidateRun,
    lane: Lane,
    by_id: Mapping[int, CandidateRun],
    decided: Mapping[tuple[int, int], LanePicks],
    oldest: OldestTasks,
) -> tuple[CandidateRun, bool, bool]:
    """Whose task the lane gives next, whether nobody else wants it, and whether it is the oldest of all.

    Where several want it: the most urgent, and of equals whoever was served least in it.
    """
    if not lane.wanting or lane.wanting.keys() == {turn.id}:
        return turn, not lane.competitors, False
    if lane.is_oldest_turn and any(one[0] != -turn.priority for one in lane.wanting.values()):
        found = [(_oldest_left(by_id[run], lane, decided, oldest), run) for run in {turn.id, *lane.wanting}]
        return by_id[min(found)[1]], False, True
    return by_id[min(_turn_in(lane, turn), min(lane.wanting.values()))[2]], False, False


def _oldest_left(
    run: CandidateRun, lane: Lane, decided: Mapping[tuple[int, int], LanePicks], oldest: OldestTasks
) -> int:
    """When the oldest task of a run came that this plan has not given away as such."""
    times = oldest(run.id, lane.id)
    part = decided.get((run.id, lane.id))
    at = part.oldest if part else 0
    return times[at] if at < len(times) else UNLIMITED << 20


def _cap_lead(candidates: Sequence[CandidateRun], known: Mapping[int, Lane], by_id: Mapping[int, CandidateRun]) -> None:
    """A run that had nothing to do does not get to catch up at the others' expense."""
    floor = max(run.share for run in candidates) - MAX_RUN_LEAD
    for candidate in candidates:
        candidate.share = max(candidate.share, floor)
    for lane in known.values():
        if len(lane.picks) + len(lane.competitors) > 1:
            mine = (picks / by_id[run].weight for run, picks in lane.picks.items())
            top = max([*(one.picks for one in lane.competitors), *mine])
            for number, picks in lane.picks.items():
                lane.picks[number] = max(picks, int((top - MAX_LANE_LEAD) * by_id[number].weight))
