"""Machines: what the machines of a fleet have, and whether they can take more workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from shoal.core.counters import decode
from shoal.core.lane import WorkerStatus
from shoal.core.resources import MachineResources, ResourcePolicy, ResourceVerdict, judge_resources
from shoal.view.metric_family import MetricFamily

MAX_MACHINES = 200


class MachineView(msgspec.Struct, frozen=True):
    """One machine or container, as its workers see it."""

    host: str
    workers: int
    have: MachineResources
    verdict: ResourceVerdict


def machine_views(statuses: Iterable[WorkerStatus], policy: ResourcePolicy = ResourcePolicy()) -> list[MachineView]:
    """By name; of each what the worker says that was heard of last."""
    by_host: dict[str, list[WorkerStatus]] = defaultdict(list)
    for status in statuses:
        by_host[status.host].append(status)
    found = []
    for host, here in sorted(by_host.items())[:MAX_MACHINES]:
        newest = max(here, key=lambda status: status.seen_at)
        if (have := decode(newest.counters).machine) is not None and have.is_plausible:
            found.append(MachineView(host, len(here), have, judge_resources(have, policy, workers=len(here))))
    return found


def resources_document(have: MachineResources, verdict: ResourceVerdict, workers: int) -> dict[str, Any]:
    return {
        "cores": have.cores,
        "cpu_share": have.cpu,
        "load": have.load,
        "memory_total": have.memory_total,
        "memory_used": have.memory_used,
        "disk_total": have.disk_total,
        "disk_free": have.disk_free,
        "files_limit": have.files_limit,
        "files_open": have.files_open,
        "limited_by": have.limited_by or "machine",
        "workers": workers,
        "can_add_workers": verdict.can_add,
        "limit": verdict.limit,
        "best_workers": verdict.best,
        "max_workers": verdict.most,
        "pressure": verdict.pressure or None,
        "pressure_reason": verdict.pressure_reason or None,
    }


def machine_families(views: Iterable[MachineView]) -> list[MetricFamily]:
    memory = MetricFamily("machine_memory_bytes", "gauge", "Memory of a machine or container with workers.")
    used = MetricFamily("machine_memory_used_bytes", "gauge", "Memory in use there.")
    disk = MetricFamily("machine_disk_free_bytes", "gauge", "Free disk space there, where workers keep their state.")
    cpu = MetricFamily("machine_cpu_share", "gauge", "Share of its cores in use, from 0 to 1.")
    room = MetricFamily("machine_room_workers", "gauge", "Workers that the machine could still take.")
    for view in views:
        memory.add(view.have.memory_total, machine=view.host)
        used.add(view.have.memory_used, machine=view.host)
        disk.add(view.have.disk_free, machine=view.host)
        cpu.add(view.have.cpu or 0.0, machine=view.host)
        room.add(view.verdict.can_add, machine=view.host)
    return [memory, used, disk, cpu, room]


def pressure_family(statuses: Iterable[WorkerStatus]) -> MetricFamily:
    family = MetricFamily("workers_limited", "gauge", "Workers that claim less, or nothing, for lack of resources.")
    levels = [decode(status.counters).pressure for status in statuses]
    for level in ("slow", "stop"):
        family.add(levels.count(level), level=level)
    return family
