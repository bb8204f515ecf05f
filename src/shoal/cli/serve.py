"""shoal serve."""

from __future__ import annotations

import sys

import click

from shoal.cli.command import Command
from shoal.cli.console import print_line
from shoal.cli.options import click_options
from shoal.config.load import Settings


@click.command(
    cls=Command,
    examples="""
    shoal serve                                   for this machine only
    shoal serve --open                            and open it in a browser
    shoal serve --queue redis://queue.internal/0  the dashboard of a fleet
    shoal serve --listen 0.0.0.0:8080             for others: add a token first
    """,
)
@click.option("--no-maintenance", is_flag=True, help="Leave the queue's maintenance to other processes.")
@click.option("--open", "show", is_flag=True, help="Open it in the browser of this machine.")
@click_options("serve")
def serve(settings: Settings, no_maintenance: bool, show: bool) -> int:
    """Serve the dashboard, the API and metrics, and do the maintenance of the queue.

    Any number may serve one queue; none has state of its own. Without a token it answers only to this
    machine. Stop it with Ctrl-C or SIGTERM: requests in progress are finished.

    Exit status: 0 stopped, 2 wrong usage, 1 the queue cannot be used.
    """
    from shoal.logs import setup_logging
    from shoal.web.server import serve_command

    setup_logging(format=settings.log_format, level=settings.log_level, file=settings.log_file)

    def opened(url: str) -> None:
        if show:
            click.launch(url)

    try:
        return serve_command(settings, say=_say, maintenance=not no_maintenance, on_ready=opened)
    except KeyboardInterrupt:  # before it began to listen for signals
        return 0


def _say(text: str) -> None:
    print_line(text, sys.stderr)
    sys.stderr.flush()
