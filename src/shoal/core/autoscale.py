"""Autoscale: how many workers there should be now, and why, from the load, the limits and what was done before. Pure.

A worker here is what a driver starts: a process, a container or a pod, which may have several processes.

A decision is made in steps: what the policy asks for, what the near future adds, what growth cannot help,
minimum and maximum, and at last the cool-downs. Fewer workers are wanted only if nothing in the whole
cool-down asked for more, so that a load that comes and goes does not drive the fleet up and down.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from shoal.core.scaling import Capacity

SECOND = 1_000_000  # times are the store's, in microseconds
MAX_FORECAST = 2.0  # times what is needed now
FULL_LOAD = 0.8  # share of what workers can do that they do without falling behind
MAX_REMEMBERED = 1_000_000  # workers, pages per second
SPEED_DECAY = 0.99  # per evaluation: a speed that is not seen again is believed less and less


class ScaleLimits(msgspec.Struct, frozen=True):
    """What a scaler may do, and how often."""

    policy: str = "claimable"
    minimum: int = 0
    maximum: int = 10
    up_cooldown: float = 60.0  # seconds between a change and growth after it
    down_cooldown: float = 300.0  # seconds in which nobody was needed before one goes
    interval: float = 30.0  # seconds between two evaluations
    up_above: float = 10.0  # tasks per worker (policy jobs_per_worker)
    down_below: float = 2.0
    pending_per_worker: int = 1_000  # (policy per_pending)
    processes: int = 1  # that each worker of the driver has; the work is shared by processes


class ScaleLoad(msgspec.Struct, frozen=True):
    """What an evaluation sees: the work, the workers, and whether there is room for more."""

    at: int
    current: int  # workers that the driver has
    capacity: Capacity
    explanation: str = ""  # of the capacity, in words
    others: int = 0  # processes that somebody else started
    room: int | None = None  # workers that would still fit; None: nobody knows
    room_limit: str = ""  # what limits it, in words
    silent: int = 0  # processes that the driver has had for a while and that the queue has not heard of
    fixed: int | None = None  # the number a person has set
    fixed_by: str = ""


class ScaleMemory(msgspec.Struct, frozen=True):
    """What later decisions need to know of earlier ones; it is kept, so that a restart changes nothing."""

    since: int = 0  # when it was begun
    changed_at: int = 0
    direction: int = 0  # of the last change
    needs: tuple[tuple[int, int], ...] = ()  # (time, workers needed): every maximum of the last cool-down
    recent: tuple[int, ...] = ()  # needs of the last evaluations
    speed: float = 0.0  # pages per second that a worker was seen to do
    is_guess: bool = False  # the last change was made when nobody knew how fast a worker is, and nobody has known since


class Decision(msgspec.Struct, frozen=True):
    """How many workers there should be, and why."""

    at: int
    current: int
    wanted: int
    needed: int  # what the policy asked for, before limits and cool-downs
    reason: str
    open: int = 0
    claimable: int = 0
    in_flight: int = 0
    workers: int = 0  # that answer, of whoever


def trusted_memory(memory: ScaleMemory, now: int) -> ScaleMemory:
    """The same, or none where it cannot be ours: it was kept where others can write, too."""
    times = (memory.since, memory.changed_at, *(at for at, _ in memory.needs))
    numbers = (memory.speed, *memory.recent, *(need for _, need in memory.needs))
    is_ours = all(0 <= at <= now for at in times) and all(0 <= number < MAX_REMEMBERED for number in numbers)
    return memory if is_ours and len(memory.needs) <= MAX_REMEMBERED else ScaleMemory()


Policy = Callable[[ScaleLoad, ScaleLimits], tuple[int, str]]


def decide(load: ScaleLoad, limits: ScaleLimits, memory: ScaleMemory) -> tuple[Decision, ScaleMemory]:
    """The decision of one evaluation, and what to remember for the next."""
    speed = max(load.capacity.rate_per_worker or 0.0, memory.speed * SPEED_DECAY)
    needed, words = _needed(load, limits)
    is_correction = memory.is_guess and load.capacity.rate_per_worker is not None
    wanted, limit = needed if is_correction else _expected(needed, memory), ""
    if wanted > needed:
        words += f"; at this rate {wanted} soon"
    elif wanted < load.current and (keeping := _keeping_up(load, limits, speed)) > wanted:
        wanted = needed = keeping
        words += f"; {_workers(keeping)} needed to keep up"
    if wanted > load.current:
        wanted, limit = _helpful(wanted, load)
    memory = _remember(memory, load.at, needed, speed, limits)
    if load.fixed is not None:  # at once, and below the minimum, too
        wanted, words, limit = load.fixed, f"set to {load.fixed} by {load.fixed_by or 'somebody'}", ""
    wanted, bound = _bounded(wanted, load, limits)
    limit = "; ".join(filter(None, (limit, bound)))
    grows_as_corrected = is_correction and wanted > load.current
    if load.fixed is None and limits.minimum <= load.current <= limits.maximum and not grows_as_corrected:
        wanted, wait = _cooled_down(wanted, load, limits, memory)
        limit = wait or limit
    if wanted != load.current:
        direction = 1 if wanted > load.current else -1
        memory = msgspec.structs.replace(memory, changed_at=load.at, direction=direction, is_guess=load.fixed is None)
    if load.capacity.rate_per_worker is not None:
        memory = msgspec.structs.replace(memory, is_guess=False)
    work = load.capacity.work
    decision = Decision(
        at=load.at,
        current=load.current,
        wanted=wanted,
        needed=needed,
        reason=f"{words}; {limit}" if limit else words,
        open=work.open,
        claimable=work.claimable,
        in_flight=work.in_flight,
        workers=work.workers,
    )
    return decision, memory


def _needed(load: ScaleLoad, limits: ScaleLimits) -> tuple[int, str]:
    number, words = POLICIES[limits.policy](load, limits)
    if load.others and number:
        words += f"; {load.others} of them were started by others"
    return max(0, math.ceil((number - load.others) / limits.processes)), words


def _expected(needed: int, memory: ScaleMemory) -> int:
    """What is needed one evaluation from now, if it has risen twice in a row: a single step is no trend."""
    if len(memory.recent) < 2:
        return needed
    first, second = memory.recent[-2:]
    rise = min(needed - second, second - first)
    return min(needed + rise, int(needed * MAX_FORECAST)) if rise > 0 else needed


def _keeping_up(load: ScaleLoad, limits: ScaleLimits, speed: float) -> int:
    """How many the present pace takes: work that is done as it comes leaves no backlog to judge by."""
    work = load.capacity.work
    attempts = work.rate + work.failing
    if not work.open or not speed:
        return 0
    processes = math.ceil(attempts / (FULL_LOAD * speed)) - load.others
    return max(0, min(load.current, math.ceil(processes / limits.processes)))


def _helpful(wanted: int, load: ScaleLoad) -> tuple[int, str]:
    """As many as would help, and what limits them."""
    work, current = load.capacity.work, load.current
    if load.silent:
        return current, f"{_workers(load.silent)} did not register with the queue: more would not, either"
    if load.capacity.is_saturated and work.workers:
        return current, "hosts allow no more"
    if work.idle and work.claimable <= work.idle:
        return current, f"{_workers(work.idle)} idle"
    if load.room is not None and wanted - current > load.room:
        return current + max(0, load.room), load.room_limit or "this machine has no room for more"
    return wanted, ""


def _bounded(wanted: int, load: ScaleLoad, limits: ScaleLimits) -> tuple[int, str]:
    if wanted > limits.maximum:
        return limits.maximum, f"{limits.maximum} is the maximum"
    if load.fixed is not None:
        return max(0, wanted), ""
    if load.capacity.work.open and wanted < 1 and not load.others:
        return max(1, limits.minimum), "something is still open"
    if wanted < limits.minimum:
        return limits.minimum, f"{limits.minimum} is the minimum"
    return wanted, ""


def _cooled_down(wanted: int, load: ScaleLoad, limits: ScaleLimits, memory: ScaleMemory) -> tuple[int, str]:
    """As many as may be now: growth waits for the last change to take effect, shrinking for a calm time."""
    current, passed = load.current, (load.at - memory.changed_at) / SECOND
    if wanted > current and current and memory.changed_at and passed < limits.up_cooldown:
        return current, f"the last change was {passed:.0f} s ago (cool-down {limits.up_cooldown:g} s)"
    if wanted < current:
        calm = (load.at - max(memory.since, memory.changed_at)) / SECOND
        if calm < limits.down_cooldown:
            return current, f"calm for {calm:.0f} s (cool-down {limits.down_cooldown:g} s)"
        peak = max(need for _, need in memory.needs)
        if peak > wanted:
            return min(current, peak), f"{_workers(peak)} needed within the last {limits.down_cooldown:g} s"
    return wanted, ""


def _remember(memory: ScaleMemory, at: int, needed: int, speed: float, limits: ScaleLimits) -> ScaleMemory:
    """Of the last cool-down only what no later need exceeds: more can never be the maximum again."""
    oldest = at - limits.down_cooldown * SECOND
    needs = tuple(it for it in memory.needs if it[0] >= oldest and it[1] > needed)
    return msgspec.structs.replace(
        memory,
        since=memory.since or at,
        needs=(*needs, (at, needed)),
        recent=(*memory.recent[-1:], needed),
        speed=speed,
    )


def _claimable(load: ScaleLoad, limits: ScaleLimits) -> tuple[int, str]:
    """As many as it takes to fetch in time what hosts allow; while nobody knows how fast they are, as many as now."""
    if load.capacity.is_unknown:
        return _there(load, limits), load.explanation or "the speed of a worker is not known yet"
    return load.capacity.desired, load.explanation or f"{load.capacity.desired} would do it in time"


def _jobs_per_worker(load: ScaleLoad, limits: ScaleLimits) -> tuple[int, str]:
    """Between two thresholds nothing changes; beyond them there are as many as the upper one asks for."""
    work, there = load.capacity.work, _there(load, limits)
    jobs = work.claimable + work.in_flight
    each = jobs / there if there else math.inf if jobs else 0.0
    words = f"{jobs} tasks to do now for {_workers(there)}"
    if each > limits.up_above:
        return math.ceil(jobs / limits.up_above), f"{words}, more than {limits.up_above:g} each"
    if each < limits.down_below:
        return math.ceil(jobs / limits.up_above), f"{words}, fewer than {limits.down_below:g} each"
    return there, words


def _per_pending(load: ScaleLoad, limits: ScaleLimits) -> tuple[int, str]:
    """One for so many that wait, of which only those count that hosts allow soon."""
    work = load.capacity.work
    pending = min(work.waiting, work.fetchable) + work.in_flight
    return math.ceil(pending / limits.pending_per_worker), f"{pending} pending, {limits.pending_per_worker} per worker"


def _there(load: ScaleLoad, limits: ScaleLimits) -> int:
    """Processes, whoever started them."""
    return load.current * limits.processes + load.others


def _workers(number: int) -> str:
    return f"{number} worker{'' if number == 1 else 's'}"


POLICIES: dict[str, Policy] = {
    "claimable": _claimable,
    "jobs_per_worker": _jobs_per_worker,
    "per_pending": _per_pending,
}
POLICY_NAMES = tuple(POLICIES)
