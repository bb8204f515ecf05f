"""Plan: how a claim is shared out between runs and lanes, decided without looking at any task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LANES_SPREAD = 16  # a batch is spread over at least so many lanes, if they are due
HORIZON = 2_000_000  # µs: a claim may reserve slots so far ahead
UNLIMITED = 1 << 40
RUN_LEAD, LANE_LEAD = 64, 16  # what a run that had nothing to do may catch up, at most
COURTESY = 4  # a slot nobody came for is free to all after so great a part of the spacing


@dataclass(slots=True)
class Contender:
    """A run that this worker serves."""

    id: int
    weight: int
    share: float
    left: int  # how many it may still hand out
    due: list[int] = field(default_factory=list)  # lanes, soonest last


@dataclass(slots=True)
class Lane:
    id: int
    name: str
    next_at: int
    spacing: int
    free: int  # places in flight
    parked: int = 0  # times in a row
    ready: dict[int, int] = field(default_factory=dict)  # by run
    picks: dict[int, int] = field(default_factory=dict)  # by run: tasks ever handed out here
    strangers: Sequence[float] = ()  # picks by weight of runs that others serve and that want this lane too

    def room(self, now: int) -> int:
        """How many more tasks it may start within the horizon."""
        first = max(self.next_at, now)
        if self.spacing == 0:
            return self.free if first <= now + HORIZON else 0
        return max(0, min(self.free, (now + HORIZON - first) // self.spacing + 1))

    def take(self, now: int) -> int:
        slot = max(self.next_at, now)
        self.next_at = slot + self.spacing
        self.free -= 1
        return slot

    def is_anothers_turn(self, mine: float, now: int) -> bool:
        """Whether a slot is to be left to a run that other workers serve, for a moment."""
        if not self.strangers:
            return False
        if self.next_at > now:
            return True  # slots to come are not hoarded where others want them too
        return mine > min(self.strangers) and now < self.next_at + self.spacing // COURTESY


def plan(
    now: int, contenders: Sequence[Contender], known: Mapping[int, Lane], limit: int
) -> dict[tuple[int, int], list[int]]:
    """The slots each (run, lane) gives to this claim. Changes shares, picks and lanes as it goes."""
    by_id = {run.id: run for run in contenders}
    _level(contenders, known, by_id)
    chunk = max(1, -(-limit // min(len(known), LANES_SPREAD)))
    decided: dict[tuple[int, int], list[int]] = {}
    while limit > 0:
        able = [run for run in contenders if run.due and run.left > 0]
        if not able:
            break
        turn = min(able, key=lambda run: (run.share, run.id))
        lane = known[turn.due.pop()]
        chosen, alone = _choose(turn, lane, by_id)
        if lane.is_anothers_turn(lane.picks[chosen.id] / chosen.weight, now):
            continue
        most = min(chunk, limit) if alone else 1
        count = min(most, chosen.left, lane.room(now), lane.ready[chosen.id])
        if count > 0:
            decided.setdefault((chosen.id, lane.id), []).extend(lane.take(now) for _ in range(count))
            lane.ready[chosen.id] -= count
            lane.picks[chosen.id] += count
            chosen.left -= count
            chosen.share += count / chosen.weight
            limit -= count
            if lane.room(now) > 0 and any(lane.ready.values()):
                turn.due.insert(0, lane.id)
    return decided


def _choose(turn: Contender, lane: Lane, by_id: Mapping[int, Contender]) -> tuple[Contender, bool]:
    """Whose task the lane gives next: where several want it, whoever was served least in it."""
    rivals = [run for run in lane.ready if run != turn.id and lane.ready[run] > 0 and by_id[run].left > 0]
    if not rivals:
        return turn, not lane.strangers
    least = min([turn.id, *rivals], key=lambda run: (lane.picks[run] / by_id[run].weight, run))
    return by_id[least], False


def _level(
    contenders: Sequence[Contender], known: Mapping[int, Lane], by_id: Mapping[int, Contender]
) -> None:
    """A run that had nothing to do does not get to catch up at the others' expense."""
    floor = max(run.share for run in contenders) - RUN_LEAD
    for contender in contenders:
        contender.share = max(contender.share, floor)
    for lane in known.values():
        if len(lane.picks) + len(lane.strangers) > 1:
            top = max([*lane.strangers, *(picks / by_id[run].weight for run, picks in lane.picks.items())])
            for number, picks in lane.picks.items():
                lane.picks[number] = max(picks, int((top - LANE_LEAD) * by_id[number].weight))
