"""shoal demo."""

from __future__ import annotations

import asyncio
import signal
import sys

import click

from shoal.cli.command import Command
from shoal.cli.new import DEMO
from shoal.cli.show import line
from shoal.errors import Act

PORT = int(DEMO.rstrip("/").rpartition(":")[2])


@click.command(
    cls=Command,
    examples="""
    shoal demo                 until Ctrl-C
    shoal demo --port 9000     on another port
    """,
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 is any free one."
)
@click.option("--products", type=click.IntRange(1), default=200, show_default=True, help="Size of the shop.")
@click.option("--slow", type=click.FloatRange(0, 60), default=0.0, help="Seconds every answer takes.")
def demo(port: int, products: int, slow: float) -> None:
    """Serve a small web site on this machine to try things on."""
    asyncio.run(_serve(port, products, slow))


async def _serve(port: int, products: int, slow: float) -> None:
    from shoal.demo.server import serve
    from shoal.demo.site import Site

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        server = await serve(Site(products=products, host_delay=slow), "127.0.0.1", port)
    except OSError as error:
        raise Act(f"port {port} cannot be served: {error.strerror}", hint="shoal demo --port 0") from error
    async with server:
        line(f"A bookshop of {products:,} books is at {server.url} (Ctrl-C ends it).")
        line("In another terminal:")
        start = "" if server.url == DEMO else f" --start {server.url}"
        line(f"  shoal new books.py{start}")
        line("  shoal run books.py -o books.jsonl --allow-private")
        line("  shoal status")
        sys.stdout.flush()
        await stop.wait()
