"""shoal rabbit status: the broker's queues, as its management API shows them."""

from __future__ import annotations

import asyncio

import click

from shoal.cli.command import Command, Group
from shoal.cli.console import clean, count, format_duration, paint, print_json, print_line, print_table
from shoal.cli.options import as_json, click_options
from shoal.config.load import Settings
from shoal.view.rabbitmq import ALARM_HINTS, BrokerQueue, BrokerStatus, broker_status, status_document


@click.group(
    cls=Group,
    examples="""
    shoal rabbit status --queue 'amqp://user:password@broker/?ledger=relay'
    shoal rabbit status --rabbitmq-management https://user:password@broker.example
    """,
)
def rabbit() -> None:
    """Look at RabbitMQ: queues, rates, consumers, TTLs, dead letters, alarms."""


@rabbit.command("status", cls=Command, examples="shoal rabbit status --json | jq '.queues[] | {name, ready}'")
@click.option("--all", "all_queues", is_flag=True, help="Every queue of the virtual host, not only shoal's.")
@as_json
@click_options("look")
def status(settings: Settings, all_queues: bool, as_json: bool) -> int:
    """Show the broker's queues; exit status 1 while it has an alarm."""
    found = asyncio.run(broker_status(settings, all_queues=all_queues))
    if as_json:
        print_json(status_document(found))
    else:
        _show(found)
    return 1 if found.alarms else 0


def _show(found: BrokerStatus) -> None:
    ready, unacknowledged = found.totals
    print_line(f"RabbitMQ {clean(found.version)} at {clean(found.where)}, virtual host {clean(found.vhost)}")
    for alarm in found.alarms or ():
        words = f"alarm: {clean(alarm.node)} is low on {alarm.resource}; whoever publishes is blocked"
        print_line(f"  {paint(words, 'red')}")
        print_line(f"  try: {ALARM_HINTS[alarm.resource]}")
    if found.alarms is None:
        print_line(f"  Whether there is an alarm, this user may not see: {clean(found.alarms_hint)}")
    if not found.queues:
        print_line("No queues of shoal here yet: a relay declares them (shoal relay). --all shows those of others.")
        return
    head = ("queue", "type", "ready", "unacked", "consumers", "in/s", "out/s", "acked/s", "ttl")
    right = "ready unacked consumers in/s out/s acked/s ttl"
    print_table(head, [_row(queue) for queue in found.queues], right=right)
    print_line(f"{count(ready, 'message')} ready, {unacknowledged:,} unacknowledged.")
    if found.more_queues:
        print_line("There are more queues than are shown here.")


def _row(queue: BrokerQueue) -> tuple[str, ...]:
    name = queue.name if queue.is_running else f"{queue.name} ({queue.state})"
    rates = (f"{rate:,.1f}" if rate else "–" for rate in (queue.in_rate, queue.out_rate, queue.ack_rate))
    depths = (f"{number:,}" for number in (queue.ready, queue.unacknowledged, queue.consumers))
    return name, queue.type, *depths, *rates, format_duration(queue.ttl) if queue.ttl is not None else "–"
