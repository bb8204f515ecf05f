"""shoal status: how a run goes, what limits it, when it ends."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import RUN_HELP, listing, pick, run_argument
from shoal.cli.show import STATES, document, fields, line, paint, table
from shoal.config import Settings
from shoal.core.forecast import lane_seconds
from shoal.queue.base import Queue
from shoal.view.documents import status_document
from shoal.view.letters import by_cause
from shoal.view.status import Status, gather, limits, other_code
from shoal.view.words import account, ago, clean, count, lasting, least_words, moment, size, under_way


@click.command(
    cls=Command,
    epilog=RUN_HELP,
    examples="""
    shoal status                 the newest run
    shoal status books --json    as one JSON document
    """,
)
@run_argument
@as_json
@click_options("look")
def status(settings: Settings, run: str | None, as_json: bool) -> int:
    """Show how RUN goes, what limits it and when it ends."""

    async def job(queue: Queue) -> None:
        found = await gather(queue, settings, await pick(queue, run))
        document(status_document(found)) if as_json else _show(found)

    return listing(settings, job, named=run, as_json=as_json, empty=None)


def _show(found: Status) -> None:
    run, stats, now = found.run, found.stats, found.now
    state = paint(found.state, STATES.get(found.state, "dim"))
    line(f"{paint(run.name, 'bold')}  {clean(run.scraper)}  {state}  begun {ago(run.created_at, now)}")
    line(account(stats))
    waiting = f"waiting {count(stats.ready - stats.delayed)} · under way {count(stats.leased)}"
    later = f" · trying again later {count(stats.delayed)}" if stats.delayed else ""
    pairs: list[tuple[str, object]] = [("records", f"{count(stats.records)}, {size(stats.bytes)} fetched")]
    if found.moved:
        pairs.append(("moved", f"to {clean(found.moved)}: look there with --queue"))
    if run.spec.get("output"):
        pairs.append(("output", clean(run.spec["output"])))
    if stats.open:
        pairs.append(("open", f"{waiting}{later}"))
    if found.rate is not None:
        pairs.append(("pages/s", f"{found.rate:.1f}"))
    if found.seeding:
        pairs.append(("adding", "addresses are still being added; if that stopped, give its command again"))
    if found.workers:
        pairs.append(("workers", f"{count(len(found.workers))} alive"))
    for words in other_code(found.run, found.workers):
        pairs.append(("code", words))
    if run.finished_at:
        pairs.append(("ended", f"{moment(run.finished_at)}, {ago(run.finished_at, now)}"))
    elif stats.open and run.state == "running" and found.workers:
        left = f"about {lasting(found.ahead.seconds)}" if found.ahead.seconds else "unknown"
        pairs.append(("time left", left))
    if stats.skipped:
        reasons = sorted(stats.skipped.items(), key=lambda pair: -pair[1])
        pairs.append(("not followed", " · ".join(f"{clean(why)} {count(number)}" for why, number in reasons)))
    fields(pairs)
    _show_limits(found)
    _show_lanes(found)
    _show_dead(found)


def _show_limits(found: Status) -> None:
    said = limits(found)
    if said:
        line()
        line("What limits it")
        for _, words in said:
            line(f"  {words}")


def _show_lanes(found: Status) -> None:
    ranked = sorted(found.lanes, key=lambda lane: -lane_seconds(lane, found.now))[:8]
    if not ranked or found.run.state not in ("running", "paused"):
        return
    line()
    rows = [
        (
            f"  {lane.name}",
            count(lane.ready),
            under_way(lane),
            f"{lane.spacing:g} s" if lane.spacing else "free",
            least_words(lane, found.now),
            lane.reason,
        )
        for lane in ranked
    ]
    table(("  host", "waiting", "under way", "spacing", "at least", "why"), rows, right="waiting")


def _show_dead(found: Status) -> None:
    if not found.stats.dead:
        return
    ranked = sorted(by_cause(found.dead).items(), key=lambda pair: -pair[1])
    line()
    line("Failed  " + " · ".join(f"{clean(cause)} {count(number)}" for cause, number in ranked[:6]))
    line(f"  try: shoal dead {found.run.name}")
