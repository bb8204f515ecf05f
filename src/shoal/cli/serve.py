"""shoal serve."""

from __future__ import annotations

import sys

import click

from shoal.cli.command import Command
from shoal.cli.options import click_options
from shoal.cli.show import line
from shoal.config import Settings


@click.command(
    cls=Command,
    examples="""
    shoal serve                                   for this machine alone
    shoal serve --open                            and show it in a browser
    shoal serve --queue redis://queue.internal/0  the control room of a fleet
    shoal serve --listen 0.0.0.0:8080             for others: add a token first
    """,
)
@click.option("--no-upkeep", is_flag=True, help="Only look and act: leave the queue's upkeep to others.")
@click.option("--open", "show", is_flag=True, help="Show it in the browser of this machine.")
@click_options("serve")
def serve(settings: Settings, no_upkeep: bool, show: bool) -> int:
    """Serve the control room: the dashboard, the API and metrics, and the upkeep of the queue.

    Any number may serve one queue; none holds anything of its own. Without a token it answers to this
    machine alone. Stop it with Ctrl-C or SIGTERM: requests under way are finished.

    Exit status: 0 stopped, 2 wrong usage, 1 the queue cannot be used.
    """
    from shoal.logs import setup
    from shoal.web.server import serve_command

    setup(format=settings.log_format, level=settings.log_level, file=settings.log_file)

    def opened(url: str) -> None:
        if show:
            click.launch(url)

    try:
        return serve_command(settings, say=_say, upkeep=not no_upkeep, opened=opened)
    except KeyboardInterrupt:  # before it began to listen for signals
        return 0


def _say(text: str) -> None:
    line(text, sys.stderr)
    sys.stderr.flush()
