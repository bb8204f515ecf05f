"""shoal demo."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import click

from shoal.cli.command import Command
from shoal.cli.console import clean, print_line, terminal_width, truncate
from shoal.cli.new import DEMO
from shoal.errors import ActionRequired, UsageError

PORT = int(DEMO.rstrip("/").rpartition(":")[2])
RECORDS = "demo-books.jsonl"
SHOWN = 3


@click.command(
    cls=Command,
    examples="""
    shoal demo                 serve the site until Ctrl-C
    shoal demo --port 9000     on another port
    shoal demo --crawl         serve it, crawl it, show the result
    """,
)
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 picks a free one.")
@click.option("--products", type=click.IntRange(1), default=200, show_default=True, help="Size of the shop.")
@click.option("--slow", type=click.FloatRange(0, 60), default=0.0, help="Seconds added to every response.")
@click.option("--crawl", is_flag=True, help="Crawl the site too, with live progress.")
@click.option("-o", "--output", metavar="FILE", default=None, help=f"With --crawl: records ({RECORDS}).")
def demo(port: int, products: int, slow: float, crawl: bool, output: str | None) -> int:
    """Serve a small demo site on this machine."""
    if crawl:
        return _crawl(products, slow or 0.1, output or RECORDS)
    if output:
        raise UsageError("-o needs --crawl", hint="shoal demo --crawl -o books.jsonl")
    asyncio.run(_serve(port, products, slow))
    return 0


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
        raise ActionRequired(f"cannot listen on port {port}: {error.strerror}", hint="shoal demo --port 0") from error
    async with server:
        print_line(f"A bookshop of {products:,} books is at {server.url} (Ctrl-C to stop).")
        print_line("In another terminal:")
        start = "" if server.url == DEMO else f" --start {server.url} --allow-private"
        print_line(f"  shoal new books.py{start}")
        print_line("  shoal run books.py -o books.jsonl --allow-private")
        print_line("  shoal status")
        sys.stdout.flush()
        await stop.wait()


def _crawl(products: int, slow: float, output: str) -> int:
    from shoal.cli.progress import run_ui
    from shoal.cli.run import with_dashboard
    from shoal.commands.demo_site import demo_site
    from shoal.commands.run import run_command
    from shoal.config.load import load

    with demo_site(products, slow) as url:
        print_line(f"A bookshop of {products:,} books is at {url}; crawling it.")
        sys.stdout.flush()
        os.environ["SHOAL_DEMO_URL"] = url
        given = {"allow_private": url.partition("//")[2].rstrip("/")}
        settings = load(given | ({} if "SHOAL_DASHBOARD" in os.environ else {"dashboard": "1"}))
        ui = run_ui()
        try:
            with with_dashboard(settings, ui.message):
                code = run_command(settings, target="shoal.demo.books", inputs=(), output=output, fresh=True, ui=ui)
        finally:
            ui.close()
    if code == 0:
        _show(Path(output))
    return code


def _show(output: Path) -> None:
    if output.suffix != ".jsonl" or not output.exists():
        return
    with output.open(encoding="utf-8") as records:
        for _, record in zip(range(SHOWN), records, strict=False):
            print_line(truncate(f"  {clean(record.rstrip())}", terminal_width() - 1))
    print_line(f"  … all of them are in {output}")
    print_line("Next: shoal serve · shoal status · shoal new mine.py · shoal --help")
