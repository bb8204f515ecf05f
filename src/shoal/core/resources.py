"""Resources: whether a machine can take more workers, what limits it, and how many suit the work. Pure."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

SLOW_DESCRIPTORS, STOP_DESCRIPTORS = 0.85, 0.95  # shares of the open files that a process may have

USUAL_RESERVE, SMALL_SHARE = 200_000_000, 0.05
USUAL_MEMORY_HIGH = 0.9

Pressure = Literal["", "slow", "stop"]


class MachineResources(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a machine or container has and how much of it is in use; 0 or None: nobody can tell."""

    cores: float = 0.0  # that may be used: less than the machine has where a quota or an affinity says so
    cpu: float | None = None  # share in use, lately
    load: float | None = None  # average of the last minute, of the whole machine
    memory_total: int = 0  # bytes
    memory_used: int = 0  # without what can be given back at any moment
    disk_total: int = 0
    disk_free: int = 0
    files_limit: int = 0  # that a process may have open
    files_open: int = 0  # by this process
    limited_by: str = ""  # where the memory ends: "" the machine itself, "cgroup v1", "cgroup v2"

    @property
    def is_plausible(self) -> bool:
        """Whether these can be the figures of a machine: whoever can write to a queue can say anything."""
        numbers = (
            self.cores, self.cpu or 0.0, self.load or 0.0, self.memory_total, self.memory_used,
            self.disk_total, self.disk_free, self.files_limit, self.files_open,
        )  # fmt: skip
        return all(0 <= number < 2**60 for number in numbers)

    @property
    def memory_share(self) -> float:
        return self.memory_used / self.memory_total if self.memory_total else 0.0


class ResourcePolicy(msgspec.Struct, frozen=True):
    """How much of a machine workers may take."""

    workers_per_core: float = 2.0
    memory_per_worker: int = 512 * 2**20
    files_per_worker: int = 64  # sockets of the machine's share that one needs at least
    memory_high: float = USUAL_MEMORY_HIGH
    disk_reserve: int = 0  # bytes; 0: USUAL_RESERVE, or SMALL_SHARE of a small disk
    cpu_high: float = 0.9
    load_per_core: float = 2.0
    guards_disk: bool = True  # else a full disk is said by whoever writes to it
    processes: int = 1  # of one worker, which share its memory

    @property
    def memory_stop(self) -> float:
        """The share of the memory at which workers claim nothing."""
        return (1 + self.memory_high) / 2

    def reserve_of(self, disk: int) -> int:
        """Bytes of a disk that must stay free."""
        return self.disk_reserve or min(USUAL_RESERVE, int(disk * SMALL_SHARE))


class ResourceVerdict(msgspec.Struct, frozen=True):
    """What a machine can take."""

    can_add: int  # workers
    limit: str  # what limits it, in words
    best: int  # workers for the pending work
    most: int  # workers that the whole machine suits
    pressure: Pressure = ""
    pressure_reason: str = ""


def judge_resources(
    have: MachineResources, policy: ResourcePolicy, *, workers: int, pending: int | None = None, per_worker: int = 32
) -> ResourceVerdict:
    """What a machine with so many workers can take, and how many suit what is pending.

    pending: tasks, None where nobody knows; per_worker: tasks that a worker does at once.
    """
    limits = [*_limits(have, policy, workers)]
    can_add, limit = min(limits, key=lambda one: one[0], default=(0, "nothing is known of this machine"))
    most = max(1, workers + min((room for room, _ in _capacities(have, policy, workers)), default=0))
    best = most if pending is None else min(most, math.ceil(pending / max(1, per_worker)))
    pressure, reason = resource_pressure(have, policy)
    return ResourceVerdict(max(0, can_add), limit, best, most, pressure, reason)


def _capacities(have: MachineResources, policy: ResourcePolicy, workers: int) -> list[tuple[int, str]]:
    """Workers that what is there allows beyond the present ones, whatever is going on right now."""
    found = []
    if have.cores:
        most = max(1, math.floor(have.cores * policy.workers_per_core))
        found.append((most - workers, f"{have.cores:g} cores, {policy.workers_per_core:g} workers each"))
    if have.memory_total:
        spare = have.memory_total * policy.memory_high - have.memory_used
        where = f" of the {have.limited_by}" if have.limited_by else ""
        words = f"{_size(max(0, spare))} of memory{where} to spare, {_size(policy.memory_per_worker)} per worker"
        found.append((math.floor(spare / policy.memory_per_worker), words))
    return found


def _limits(have: MachineResources, policy: ResourcePolicy, workers: int) -> list[tuple[int, str]]:
    found = _capacities(have, policy, workers)
    if have.cpu is not None and policy.cpu_high < 1 and have.cpu >= policy.cpu_high:
        found.append((0, f"the CPU is {have.cpu:.0%} busy"))
    if have.load is not None and have.cores and policy.cpu_high < 1 and have.load > have.cores * policy.load_per_core:
        found.append((0, f"the load is {have.load:.1f} on {have.cores:g} cores"))
    if have.disk_total and have.disk_free < 2 * policy.reserve_of(have.disk_total):
        found.append((0, f"{_size(have.disk_free)} of disk are free"))
    if have.files_limit and have.files_limit < policy.files_per_worker:
        found.append((0, f"a process may open {have.files_limit} files"))
    return found


def resource_pressure(have: MachineResources, policy: ResourcePolicy) -> tuple[Pressure, str]:
    """Whether workers should claim less or nothing, and why: before memory, disk or descriptors run out."""
    found: list[tuple[Pressure, str]] = []
    if have.memory_total and policy.memory_high < 1:
        words = f"{have.memory_share:.0%} of {_size(have.memory_total)} memory in use"
        found.append((_level(have.memory_share, policy.memory_high, policy.memory_stop), words))
    if have.disk_total and policy.guards_disk:
        reserve = policy.reserve_of(have.disk_total)
        level: Pressure = "slow" if have.disk_free < 2 * reserve else ""
        level = "stop" if have.disk_free < reserve else level
        found.append((level, f"{_size(have.disk_free)} of disk free"))
    if have.files_limit:
        share = have.files_open / have.files_limit
        found.append((_level(share, SLOW_DESCRIPTORS, STOP_DESCRIPTORS), f"{have.files_open} files open"))
    for wanted in ("stop", "slow"):
        for level, words in found:
            if level == wanted:
                return level, words
    return "", ""


def _level(share: float, slow: float, stop: float) -> Pressure:
    return "stop" if share >= stop else "slow" if share >= slow else ""


def _size(number: float) -> str:
    for unit, divisor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if number >= divisor:
            return f"{number / divisor:.3g} {unit}"
    return f"{number:.0f} B"
