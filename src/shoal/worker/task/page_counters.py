"""What one attempt at a page counts for its run: what the exchange took, and how the records are filled."""

from __future__ import annotations

from functools import lru_cache

from shoal.core.capability import BROWSER
from shoal.core.lane import DIRECT
from shoal.core.run_counters import (
    FETCH_PREFIX,
    UNIQUE_YIELDED,
    count_auto,
    count_empty_page,
    count_fields,
    count_hit,
    count_miss,
)
from shoal.worker.context import RunContext
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.handler_output import HandlerOutput

UNNAMED_PROXY = "proxy"  # an exit without a name of its own
MAX_EXIT = 40  # letters


def page_counters(attempt: TaskAttempt, output: HandlerOutput | None = None) -> dict[str, int]:
    """Empty where nothing was answered and nothing found."""
    response, run_context = attempt.response, attempt.run_context
    if run_context is None:
        return {}
    counters: dict[str, int] = {}
    if attempt.usage.by_fetcher or attempt.usage.visits:
        counters = _count_usage(attempt, run_context)
    if response is not None and response.cache == "hit":  # it was not fetched
        counters |= count_hit(len(response.body))
    elif response is not None and response.cache:
        counters |= count_miss(response.cache)
    if output is None:
        return counters
    if attempt.auto_count:
        counters |= count_auto(attempt.auto_count)
    if output.records:
        run_context.record_watch.has_records = True
        counters.update(count_fields(output.records))
        if run_context.unique:
            counters[UNIQUE_YIELDED] = output.yielded
    elif not run_context.record_watch.has_records:
        links = output.links or sum(len(follow.hrefs) for follow in output.follows)
        counters.update(count_empty_page(links, output.missed))
    return counters


def _count_usage(attempt: TaskAttempt, run_context: RunContext) -> dict[str, int]:
    """By fetcher; this process's own time on the processor goes to the one that was used first."""
    usage, exit = attempt.usage, _exit(attempt, run_context)
    counters: dict[str, int] = {}
    cpu_micros = attempt.context.cpu_meter.take()
    for fetcher, used in usage.by_fetcher.items():
        responses, size, micros, cpu, _ = _fetch_names(fetcher, exit)
        counters |= {responses: used.responses, size: used.bytes, micros: round(used.seconds * 1e6), cpu: cpu_micros}
        cpu_micros = 0
    if usage.visits:
        _, size, _, cpu, browser = _fetch_names(BROWSER, exit)
        for visit in usage.visits:
            visit.look()
            counters[size] = counters.get(size, 0) + visit.bytes
            counters[cpu] = counters.get(cpu, 0) + visit.cpu + cpu_micros
            counters[browser] = counters.get(browser, 0) + round(visit.seconds * 1e6)
            cpu_micros = 0
    return counters


def _exit(attempt: TaskAttempt, run_context: RunContext) -> str:
    """The way a request left by: the name of its exit, or of its proxy's secret; URLs may have passwords in them."""
    if name := attempt.exit_of(run_context):
        return name
    options = attempt.task.request_options
    if options is not None and options.proxy:
        return UNNAMED_PROXY if "://" in options.proxy else options.proxy[:MAX_EXIT]
    return UNNAMED_PROXY if run_context.request_builder.proxy else DIRECT


@lru_cache(256)
def _fetch_names(fetcher: str, exit: str) -> tuple[str, str, str, str, str]:
    base = f"{FETCH_PREFIX}{fetcher}.{exit}"
    return f"{base}.responses", f"{base}.bytes", f"{base}.us", f"{base}.cpu_us", f"{base}.browser_us"
