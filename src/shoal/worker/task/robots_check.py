"""The robots.txt check of one request: it may pass, wait for a slower slot, be retried, or be excluded."""

from __future__ import annotations

from typing import NoReturn

from shoal.core.lane import host_of_lane
from shoal.core.task import LaneChange
from shoal.errors import FetchFailed, Retry
from shoal.politeness.robots import RobotsVerdict
from shoal.worker.context import RunContext
from shoal.worker.postponed import TaskPostponed
from shoal.worker.task import slot
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.failure import ExcludedByRule


async def check_robots(attempt: TaskAttempt, run_context: RunContext, url: str) -> None:
    if run_context.robots is None:
        return
    lane, asked_at = attempt.lane_of(url), attempt.context.clock()
    verdict = await run_context.robots.verdict(url, attempt.exit_of(run_context))
    if verdict.wait:
        _raise_robots_unknown(attempt, lane, verdict, verdict.wait)
    delay = verdict.crawl_delay or 0.0
    if lane == attempt.task.lane:
        attempt.crawl_delay = delay
    if verdict.crawl_delay_changed:  # also where there is none now: the file asked for one before
        # Now and not with the outcome: by then the host may have taught us a slower pace.
        change = LaneChange(lane, spacing=delay, reason="crawl-delay" if delay else "")
        await attempt.context.queue.set_lane(change)
    if not verdict.allowed:
        raise ExcludedByRule("robots", f"robots.txt of {host_of_lane(lane)} does not allow it")
    # robots.txt went out in this request's slot, or the slot passed while another task asked, or the
    # task was claimed before the crawl-delay was known.
    is_own_lane = lane == attempt.task.lane
    own_spacing = attempt.task.spacing if is_own_lane else run_context.pace(lane).spacing
    spacing = max(own_spacing, delay)
    is_late = attempt.context.clock() - asked_at > spacing * slot.TOLERANCE
    if spacing and (verdict.fresh or is_late or delay > own_spacing):
        if delay > own_spacing and not verdict.crawl_delay_changed:
            await attempt.context.queue.set_lane(LaneChange(lane, spacing=delay, reason="crawl-delay"))
        if is_own_lane and attempt.may_leave:
            raise slot.NewSlotNeeded(spacing)
        if is_own_lane:
            await slot.reserve(attempt.context, lane, spacing)
        else:
            await slot.reserve_other_lane(attempt.context, lane, run_context.pace(lane))


def refuse_disallowed(attempt: TaskAttempt, run_context: RunContext, url: str) -> None:
    """A page from the cache costs its host nothing, so robots.txt is not asked for; where it is known, it counts."""
    if run_context.robots is None:
        return
    host = host_of_lane(attempt.lane_of(url))
    if run_context.robots.peek(host, url) is False:
        raise ExcludedByRule("robots", f"robots.txt of {host} does not allow it")


def _raise_robots_unknown(attempt: TaskAttempt, lane: str, verdict: RobotsVerdict, wait: float) -> NoReturn:
    if not verdict.cause:
        reason = verdict.reason or f"robots.txt of {host_of_lane(lane)} cannot be read"
        raise Retry("robots_unreachable", reason, after=wait)
    if attempt.task.probe and lane == attempt.task.lane and not verdict.fresh:
        # Nothing was found out: the lane is to be tried when robots.txt may be asked for again.
        attempt.add_lane_change(LaneChange(lane, hold_for=wait, reason=verdict.reason))
        raise TaskPostponed(verdict.reason)
    attempt.record_no_response(lane, verdict.cause)
    raise FetchFailed(verdict.cause, verdict.reason, after=wait)
