"""shoal serve."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from shoal.cli.command import Command
from shoal.cli.console import print_line
from shoal.cli.options import click_options
from shoal.config.load import Settings
from shoal.errors import UsageError


@click.command(
    cls=Command,
    examples="""
    shoal serve                                   for this machine only
    shoal serve --open                            and open it in a browser
    shoal serve --port 9000                       at another port
    shoal serve --queue redis://queue.internal/0  the dashboard of a fleet
    shoal serve --listen 0.0.0.0:8080             for others: add a token first
    """,
)
@click.option("--no-maintenance", is_flag=True, help="Leave the queue's maintenance to other processes.")
@click.option("--open", "show", is_flag=True, help="Open it in the browser of this machine.")
@click.option("--host", metavar="ADDRESS", help="The address to listen on, as in --listen ADDRESS:PORT.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port to listen on; 0 is any free one.")
@click_options("serve")
def serve(settings: Settings, no_maintenance: bool, show: bool, host: str | None, port: int | None) -> int:
    """Serve the dashboard, the API and metrics, and do the maintenance of the queue.

    Any number may serve one queue; none has state of its own. Without a token it answers only to this
    machine. Stop it with Ctrl-C or SIGTERM: requests in progress are finished.

    Exit status: 0 stopped, 2 wrong usage, 1 the queue cannot be used.
    """
    from shoal.logs import setup_logging
    from shoal.web.server import serve_command

    settings = with_address(settings, host, port)
    setup_logging(format=settings.log_format, level=settings.log_level, file=settings.log_file)

    def opened(url: str) -> None:
        if show:
            click.launch(url)

    try:
        return serve_command(settings, say=_say, maintenance=not no_maintenance, on_ready=opened)
    except KeyboardInterrupt:  # before it began to listen for signals
        return 0


def with_address(settings: Settings, host: str | None, port: int | None) -> Settings:
    """The same settings, listening at another address or port; what is not given stays as it is set."""
    if host is None and port is None:
        return settings
    if settings.sources.get("listen") == "--listen":
        raise UsageError(
            "--listen says both the address and the port", hint="--listen ADDRESS:PORT, or --host and --port"
        )
    usual_host, _, usual_port = settings.listen.rpartition(":")
    address = (host if host is not None else usual_host).strip("[]")
    if not address or "/" in address or address.count(":") == 1:
        raise UsageError(f"--host {host!r} is not an address", hint="--host 0.0.0.0 --port 8080")
    listen = f"[{address}]" if ":" in address else address
    return replace(settings, listen=f"{listen}:{usual_port if port is None else port}")


def _say(text: str) -> None:
    print_line(text, sys.stderr)
    sys.stderr.flush()
