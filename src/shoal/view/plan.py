"""Plan: what a planned crawl takes, as sentences and as a JSON document."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from shoal.core.plan import Limit, Plan, PlanRequest
from shoal.core.queue_url import MAX_SHARDS
from shoal.queue.registry import BACKENDS
from shoal.view.formatting import count, format_duration, format_pace, format_rate, size

LEAST_CORES = 0.01  # that are told as a number
LABELS = {backend.name: backend.label for backend in BACKENDS}


def describe_plan(plan: Plan) -> Iterator[tuple[str, str]]:
    """(what, words), for people."""
    request = plan.request
    yield "time", _time_words(plan)
    yield "fleet", _fleet_words(plan)
    yield "limited by", limit_words(plan, plan.limits[0])
    others = [limit for limit in plan.limits[1:] if not math.isinf(limit.rate)]
    if others:
        yield "next limit", limit_words(plan, min(others, key=lambda limit: limit.rate))
    yield "hosts", _host_words(plan)
    yield "queue", _queue_words(plan)
    yield "storage", _storage_words(plan)
    bits = f"{_bits(plan.peak_bandwidth)} at most" if not math.isinf(plan.peak_bandwidth) else "as much as there is"
    yield "traffic", f"{size(plan.traffic)} in all, {bits}"
    memory = f"{size(plan.machine_memory)} of {size(request.memory)} per machine"
    yield "memory", f"{memory}, {size(request.worker_memory)} per worker"
    if not request.prices.is_free:
        yield "cost", _cost_words(plan)


def plan_problems(plan: Plan) -> list[str]:
    """What keeps the crawl from being done like this, and what to do about it."""
    request, found = plan.request, []
    if not plan.in_time:
        assert request.within is not None
        late = f"it takes {format_duration(plan.seconds)}, not {format_duration(request.within)}"
        if plan.least_seconds > request.within:
            why = f"hosts alone need {format_duration(plan.least_seconds)}, however many machines there are"
            found.append(f"{late}: {why}; fetch fewer pages of the largest (--largest-host), or more often (--rate)")
        else:
            found.append(f"{late}: {limit_words(plan, plan.limits[0])}")
    if plan.machine_memory > request.memory:
        found.append(
            f"workers need {size(plan.machine_memory)} of memory per machine, which has {size(request.memory)}:"
            " --workers or --concurrency with less"
        )
    if plan.servers_needed > request.servers:
        found.append(_server_problem(plan))
    elif request.servers > MAX_SHARDS and not request.sizing.on_one_machine:
        found.append(f"{request.servers} servers are more than the {MAX_SHARDS} that a queue may have (--servers)")
    return found


def _server_problem(plan: Plan) -> str:
    request, kept = plan.request, plan.storage.queue + plan.storage.records
    servers = f"{count(plan.servers_needed, 'server')} of {size(request.server_memory)}"
    if plan.servers_needed > MAX_SHARDS:
        servers += f" (--servers), more than the {MAX_SHARDS} that a queue may have, or larger ones (--server-memory),"
    else:
        servers += " (--servers),"
    return (
        f"{LABELS[request.queue]} keeps URLs and records in memory, {size(kept)} of them: {servers}"
        " records elsewhere (--record-size 0), or PostgreSQL (--on postgres), which keeps them on disk"
    )


def limit_words(plan: Plan, limit: Limit) -> str:
    """What one part allows, and why."""
    request = plan.request
    rate = f"{_pages(limit.rate)}/s"
    if limit.name == "hosts":
        largest = round(request.sizes.largest)
        pace = format_pace(request.host_spacing)
        if not request.host_spacing:
            return "hosts' pace: no limit"
        if request.hosts == 1:
            return f"the host's pace: {count(largest, 'page')} at {pace} take {format_duration(plan.least_seconds)}"
        words = f"the largest host has {count(largest, 'page')}, which at {pace} take"
        return f"hosts' pace: {words} {format_duration(plan.least_seconds)}"
    if limit.name == "cpu":
        each = f"a page takes {request.page_cpu * 1000:.2g} ms of a core"
        return f"CPU: {each}, so {count(plan.workers, 'worker')} do {rate}"
    if limit.name == "concurrency":
        at_once = f"{count(plan.workers, 'worker')} with {request.pages_at_once} at once"
        each = f"each for {format_duration(request.place_seconds)}"
        return f"pages in progress: {at_once}, {each}, do {rate} (--concurrency)"
    if limit.name == "bandwidth":
        return f"bandwidth: {_bits(request.bandwidth)} per machine are {rate} of {size(request.page_bytes)}"
    servers = count(request.servers, "server") if request.servers > 1 else "one server"
    more = " (--servers)"
    if request.sizing.on_one_machine:
        servers, more = "one file", ""
    return f"the queue: {servers} of {LABELS[request.queue]} can take {rate}{more}"


def _time_words(plan: Plan) -> str:
    words = f"{format_duration(plan.seconds)} for {count(plan.request.urls, 'page')}: {_pages(plan.rate)}/s on average"
    if plan.most_pages_done < 0.5 * plan.seconds:
        words += f"; 90 % of them within {format_duration(plan.most_pages_done)}, the largest hosts take the rest"
    return words


def _fleet_words(plan: Plan) -> str:
    request = plan.request
    machines = f"{count(plan.machines, 'machine')} with {request.cores:g} cores"
    return f"{machines}, {count(plan.workers, 'worker')} in all, each with --concurrency {request.pages_at_once}"


def _host_words(plan: Plan) -> str:
    request, sizes = plan.request, plan.request.sizes
    if request.hosts == 1:
        return f"one, {format_pace(request.host_spacing)}"
    spread = "all equally large" if sizes.exponent < 0.001 else f"the n-th largest has 1/n^{sizes.exponent:.2g} of that"
    given = "" if request.largest_host else " (assumed; --largest-host)"
    return (
        f"{count(request.hosts)}, {format_pace(request.host_spacing)} each;"
        f" the largest has {count(round(sizes.largest), 'page')}, {spread}{given}"
    )


def _queue_words(plan: Plan) -> str:
    request = plan.request
    busy = plan.server_cores / request.speed
    words = LABELS[request.queue]
    if not request.sizing.on_one_machine:
        words += f", {count(plan.servers_needed, 'server')}, {count(plan.connections, 'connection')}"
    if math.isinf(busy):
        return words
    return f"{words}, {f'{busy:.2g} cores at most' if busy >= LEAST_CORES else f'less than {LEAST_CORES} cores'}"


def _storage_words(plan: Plan) -> str:
    kept = plan.storage
    parts = [f"queue {size(kept.queue)}", f"records {size(kept.records)}" if kept.records else ""]
    parts += [f"saved pages {size(kept.saved)}" if kept.saved else ""]
    return f"{size(kept.total)}: {', '.join(filter(None, parts))}"


def _cost_words(plan: Plan) -> str:
    cost = plan.cost
    words = f"{cost.total:,.2f}, {_money(plan.cost_per_million)} per million pages"
    if cost.scaled_total < 0.9 * cost.total:
        scaled = f"{cost.scaled_total:,.2f}, {_money(plan.scaled_cost_per_million)} per million"
        words += f"; {scaled} if machines are given back as hosts run out of work (shoal scale auto)"
    return words


def _money(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 1 or not amount else f"{amount:.2g}"


def _pages(rate: float) -> str:
    if math.isinf(rate):
        return "any number of pages"
    words = f"{rate:,.0f}" if rate >= 100 else format_rate(rate)
    return f"{words} page{'' if words == '1' else 's'}"


def _bits(rate: float) -> str:
    unit, divisor = ("Gbit/s", 1e9) if rate >= 1e9 else ("Mbit/s", 1e6) if rate >= 1e6 else ("kbit/s", 1e3)
    return f"{rate / divisor:.3g} {unit}"


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan for programs: seconds, bytes, pages per second."""
    request, cost = plan.request, plan.cost
    return {
        "request": _request_document(request),
        "seconds": _finite(plan.seconds),
        "least_seconds": _finite(plan.least_seconds),
        "seconds_for_90_percent": _finite(plan.most_pages_done),
        "in_time": plan.in_time,
        "pages_per_s": _finite(plan.rate),
        "peak_pages_per_s": _finite(plan.peak_rate),
        "machines": plan.machines,
        "workers": plan.workers,
        "concurrency": request.pages_at_once,
        "machine_hours": _finite(plan.machine_hours),
        "machine_hours_scaled": _finite(plan.scaled_machine_hours),
        "limited_by": plan.limited_by,
        "limits": [
            {"name": limit.name, "pages_per_s": _finite(limit.rate), "words": limit_words(plan, limit)}
            for limit in plan.limits
        ],
        "queue_servers": plan.servers_needed,
        "connections": plan.connections,
        "storage_bytes": {
            "queue": plan.storage.queue,
            "records": plan.storage.records,
            "saved_pages": plan.storage.saved,
            "total": plan.storage.total,
        },
        "traffic_bytes": plan.traffic,
        "peak_bits_per_s": _finite(plan.peak_bandwidth),
        "machine_memory_bytes": plan.machine_memory,
        "cost": {
            "total": _finite(cost.total),
            "total_scaled": _finite(cost.scaled_total),
            "per_million_pages": _finite(plan.cost_per_million),
            "per_million_pages_scaled": _finite(plan.scaled_cost_per_million),
            "machines": _finite(cost.machines),
            "queue_servers": _finite(cost.servers),
            "traffic": _finite(cost.traffic),
            "storage": _finite(cost.storage),
            "pages": _finite(cost.pages),
        },
        "problems": plan_problems(plan),
    }


def _request_document(request: PlanRequest) -> dict[str, Any]:
    return {
        "urls": request.urls,
        "hosts": request.hosts,
        "largest_host": round(request.sizes.largest),
        "host_size_exponent": round(request.sizes.exponent, 4),
        "spacing": request.spacing,
        "in_flight": request.in_flight,
        "latency": request.latency,
        "page_bytes": request.page_bytes,
        "record_bytes": request.record_bytes,
        "repeated": request.repeated,
        "cpu_per_page": request.page_cpu,
        "queue": request.queue,
        "cores": request.cores,
        "memory_bytes": request.memory,
        "within": request.within,
        "speed": request.speed,
    }


def _finite(number: float) -> float | None:
    """None where there is no limit: JSON has no infinity."""
    return None if math.isinf(number) else round(number, 6)
