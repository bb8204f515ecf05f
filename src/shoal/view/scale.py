"""The scaler as people see it: who scales, what was decided and why, what is wrong with it."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.control.scaling.scale_documents import (
    LOCK,
    ScaleEvent,
    ScaleRequest,
    ScaleState,
    read_history,
    read_request,
    read_state,
)
from shoal.core.autoscale import Decision
from shoal.queue.base import Queue
from shoal.runs.fleet_lock import current_holder
from shoal.view.formatting import iso_time
from shoal.view.metric_family import MetricFamily

SILENT_AFTER = 120.0  # seconds beyond three evaluations: as long as a driver may hang, and a lock lives on


class ScaleStatus(msgspec.Struct, frozen=True):
    at: int = 0
    state: ScaleState | None = None  # None: there never was a scaler
    request: ScaleRequest = ScaleRequest()
    has_holder: bool = False  # somebody has the lock

    @property
    def is_acting(self) -> bool:
        return self.state is not None and self.has_holder

    @property
    def silent_seconds(self) -> float | None:
        """Since the last evaluation of a scaler that has not said that it stops; None: there is none."""
        return None if self.state is None or self.state.stopped else max(0.0, (self.at - self.state.at) / 1e6)

    @property
    def is_silent(self) -> bool:
        """Whether a scaler died or hangs: several evaluations are overdue."""
        seconds = self.silent_seconds
        return (
            seconds is not None and self.state is not None and seconds > SILENT_AFTER + 3 * self.state.limits.interval
        )


async def scale_status(queue: Queue) -> ScaleStatus:
    state, holder = await read_state(queue), None
    if state is not None:
        holder = await current_holder(queue, LOCK)
    has_holder = holder is not None and not holder.has_died_locally()
    return ScaleStatus(await queue.now(), state, await read_request(queue), has_holder)


def scale_document(status: ScaleStatus) -> dict[str, Any]:
    state, request = status.state, status.request
    return {
        "acting": status.is_acting,
        "fixed_workers": request.fixed,
        "fixed_by": request.by if request.fixed is not None else None,
        "evaluated_at": iso_time(state.at) if state else None,
        "driver": state.driver if state else None,
        "target": state.target if state else None,
        "host": state.host if state else None,
        "idle_first": state.can_choose if state else None,
        "policy": state.limits.policy if state else None,
        "min_workers": state.limits.minimum if state else None,
        "max_workers": state.limits.maximum if state else None,
        "interval_s": state.limits.interval if state else None,
        "workers": state.replicas.count if state and state.replicas else None,
        "running": state.replicas.running if state and state.replicas else None,
        "decision": decision_document(state.decision) if state and state.decision else None,
        "problem": state.problem or None if state else None,
        "hint": state.hint or None if state else None,
    }


def decision_document(decision: Decision) -> dict[str, Any]:
    return {
        "at": iso_time(decision.at),
        "current": decision.current,
        "wanted": decision.wanted,
        "needed": decision.needed,
        "reason": decision.reason,
        "open": decision.open,
        "claimable": decision.claimable,
        "in_flight": decision.in_flight,
    }


def event_document(event: ScaleEvent) -> dict[str, Any]:
    return {
        "at": iso_time(event.at),
        "driver": event.driver,
        "current": event.current,
        "wanted": event.wanted,
        "reason": event.reason,
        "problem": event.problem or None,
        "open": event.open,
        "claimable": event.claimable,
        "in_flight": event.in_flight,
    }


async def history_documents(queue: Queue, limit: int) -> list[dict[str, Any]]:
    """The newest first."""
    return [event_document(event) for event in (await read_history(queue))[:limit]]


def scale_families(status: ScaleStatus) -> list[MetricFamily]:
    """Without samples where nobody scales: a number that nobody keeps up to date would mislead."""
    state = status.state if status.is_acting else None
    failing = MetricFamily("scaler_failing", "gauge", "Whether the driver of the autoscaler has a problem.")
    least = MetricFamily("scaler_min_workers", "gauge", "Fewest workers the autoscaler keeps.")
    most = MetricFamily("scaler_max_workers", "gauge", "Most workers the autoscaler starts.")
    there = MetricFamily("scaler_workers", "gauge", "Workers that the driver of the autoscaler has.")
    wanted = MetricFamily("scaler_wanted_workers", "gauge", "Workers that the autoscaler wants.")
    if state is not None:
        failing.add(int(bool(state.problem)))
        least.add(state.limits.minimum)
        most.add(state.limits.maximum)
        if state.replicas is not None:
            there.add(state.replicas.count)
        if state.decision is not None:
            wanted.add(state.decision.wanted)
    silent = MetricFamily(
        "scaler_silent_seconds", "gauge", "Time since the autoscaler last evaluated; none after an orderly stop."
    )
    if status.silent_seconds is not None:
        silent.add(status.silent_seconds)
    acting = MetricFamily("scaler_acting", "gauge", "Whether an autoscaler is at work.").add(int(status.is_acting))
    return [acting, failing, silent, there, wanted, least, most]
