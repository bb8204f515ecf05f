"""shoal pause, resume and cancel."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import RUN_HELP, pick, run_argument, with_queue
from shoal.cli.runs import run_document
from shoal.cli.show import count, document, line
from shoal.config import Settings
from shoal.queue.base import Queue, RunAction

SAID = {
    "pause": "Run {name} is paused: {leased} under way will end, {ready} wait.\n"
    "  Go on with: shoal resume {name}",
    "resume": "Run {name} goes on: {ready} wait.",
    "cancel": "Run {name} is cancelled: {done} done, {cancelled} given up. Its records are kept.",
}


def _steer(settings: Settings, run: str | None, as_json: bool, action: RunAction) -> None:
    async def job(queue: Queue) -> None:
        changed = await queue.set_run((await pick(queue, run)).id, action)
        stats = await queue.stats(changed.id)
        if as_json:
            document(run_document(changed, stats))
            return
        words = SAID[action].format(
            name=changed.name,
            leased=count(stats.leased, "page"),
            ready=count(stats.ready),
            done=count(stats.done),
            cancelled=count(stats.cancelled),
        )
        line(words)

    with_queue(settings, job)


@click.command(cls=Command, epilog=RUN_HELP, examples="shoal pause\nshoal pause k3f")
@run_argument
@as_json
@click_options("look")
def pause(settings: Settings, run: str | None, as_json: bool) -> None:
    """Hold RUN: pages under way end, no others start."""
    _steer(settings, run, as_json, "pause")


@click.command(cls=Command, epilog=RUN_HELP, examples="shoal resume\nshoal resume k3f")
@run_argument
@as_json
@click_options("look")
def resume(settings: Settings, run: str | None, as_json: bool) -> None:
    """Let a paused RUN go on."""
    _steer(settings, run, as_json, "resume")


@click.command(cls=Command, epilog=RUN_HELP, examples="shoal cancel k3f\nshoal cancel books")
@run_argument
@as_json
@click_options("look")
def cancel(settings: Settings, run: str | None, as_json: bool) -> None:
    """End RUN: what waits is given up, records are kept."""
    _steer(settings, run, as_json, "cancel")
