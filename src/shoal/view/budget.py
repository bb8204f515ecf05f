"""Budget: what a run has used of it, that it is paused for it, and how to go on."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shoal.control.history_sample import Sample
from shoal.core.budget import limited_kinds
from shoal.core.budget_text import KINDS
from shoal.core.cost import NOTHING, Cost, cost_of
from shoal.core.counters import COSTS
from shoal.core.run import Run
from shoal.queue.base import Queue
from shoal.queue.budget_ledger import load_ledger
from shoal.view.formatting import format_duration, size
from shoal.view.run_state import is_shared

_NAMES = {"bytes": "transferred", "proxy": "by exits and proxies", "cpu": "of the processor", "browser": "in browsers"}


class BudgetUse(msgspec.Struct, frozen=True):
    limits: Cost
    used: Cost  # settled by now
    set_aside: Cost  # by workers, for pages in progress and the next ones
    lost: Cost  # of workers that are gone: nobody knows how much of it was used
    spent: str = ""  # the kind for which the run is paused
    largest: Cost = NOTHING  # what a page of late has cost at most, each kind by itself


async def budget_use(queue: Queue, run: Run, counters: dict[str, int]) -> BudgetUse | None:
    """None for a run without a budget."""
    ledger = (await load_ledger(queue, run)).ledger
    if ledger.limits == NOTHING:
        return None
    spent = ledger.spent if run.state == "paused" else ""
    return BudgetUse(ledger.limits, cost_of(counters), ledger.set_aside, ledger.lost, spent, ledger.largest)


def describe_budget(use: BudgetUse) -> str:
    """How much of it is used."""
    return " · ".join(_used(use, kind) for kind in limited_kinds(use.limits))


def describe_spent(use: BudgetUse, run: Run) -> str:
    """Why a run is paused, and how to go on; empty where it is not."""
    if not use.spent:
        return ""
    words = f"its budget is used up: {_used(use, use.spent)}"
    next_page = use.largest.get(use.spent)
    if next_page and use.used.get(use.spent) + use.lost.get(use.spent) < use.limits.get(use.spent):
        words += f", and a page may take {format_amount(use.spent, next_page)}"
    return f"{words}; {how_to_go_on(use, run)}"


def how_to_go_on(use: BudgetUse, run: Run) -> str:
    larger = ",".join(
        f"{kind}={_as_setting(kind, use.limits.get(kind) * (2 if kind == use.spent else 1))}"
        for kind in limited_kinds(use.limits)
    )
    if is_shared(run):
        return f"shoal resume {run.name} --budget {larger} goes on"
    return f"the same command with a larger --budget goes on, such as {larger}"


def format_amount(kind: str, amount: int) -> str:
    return size(amount) if kind in ("bytes", "proxy") else format_duration(amount / 1e6)


def cost_lines(cost: Cost) -> list[tuple[str, str]]:
    """What was used, by kind: what it is called, and how much; kinds of which nothing was used are left out."""
    return [(_NAMES[kind], format_amount(kind, cost.get(kind))) for kind in KINDS if cost.get(kind)]


def describe_cost(cost: Cost) -> str:
    """Empty where nothing was used."""
    return " · ".join(f"{amount} {what}" for what, amount in cost_lines(cost))


def host_cost(samples: Iterable[Sample], host: str) -> tuple[Cost, int]:
    """What the pages of a host have cost in this time, and how many there were, as far as it was a busy one."""
    cost, pages = NOTHING, 0
    for sample in samples:
        if (point := sample.hosts.get(host)) is not None:
            cost += Cost(*(getattr(point, name) for name in COSTS))
            pages += point.done
    return cost, pages


def per_record(cost: Cost, records: int) -> Cost | None:
    """None where there is no record."""
    return Cost(*(round(amount / records) for amount in cost.amounts)) if records else None


def _used(use: BudgetUse, kind: str) -> str:
    lost = f", of them {format_amount(kind, use.lost.get(kind))} lost with workers" if use.lost.get(kind) else ""
    used = format_amount(kind, use.used.get(kind) + use.lost.get(kind))
    return f"{used} of {format_amount(kind, use.limits.get(kind))} {_NAMES[kind]}{lost}"


def _as_setting(kind: str, amount: int) -> str:
    if kind in ("bytes", "proxy"):
        for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
            if amount % factor == 0:
                return f"{amount // factor}{unit}"
        return str(amount)
    seconds = amount / 1e6
    for unit, factor in (("h", 3600), ("m", 60)):
        if seconds % factor == 0:
            return f"{seconds / factor:g}{unit}"
    return f"{seconds:g}s"
