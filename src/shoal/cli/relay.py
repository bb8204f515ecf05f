"""shoal relay."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.options import click_options
from shoal.config.load import Settings


@click.command(
    cls=Command,
    examples="""
    shoal relay --queue 'amqp://user:password@broker/?ledger=redis://127.0.0.1/0'
    shoal relay --print-policies      commands that limit its queues
    """,
)
@click.option("--print-policies", is_flag=True, help="Print commands that set useful policies in RabbitMQ, and exit.")
@click_options("run")
def relay(settings: Settings, print_policies: bool) -> int:
    """Start a relay: it connects RabbitMQ with the queue that keeps the work.

    With --queue amqp://…?ledger=…, workers and producers reach RabbitMQ only. A relay has the ledger (a Redis,
    PostgreSQL or SQLite queue): it answers what they ask for through the broker, and publishes tasks that need no
    pace ahead, one per message. Run two or more where one must not be missed.

    Stop it with Ctrl-C or SIGTERM: nothing is lost, also without another relay.

    Exit status: 0 stopped; 2 wrong usage; 1 the broker or the ledger cannot be used.
    """
    from shoal.commands.relay import policies, relay_command
    from shoal.logs import setup_logging

    if print_policies:
        for line in policies(settings):
            click.echo(line)
        return 0
    setup_logging(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    try:
        return relay_command(settings, lambda words: click.echo(words, err=True))
    except KeyboardInterrupt:  # before it began to listen for signals
        return 0
