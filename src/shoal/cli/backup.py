"""shoal backup, shoal restore: everything a queue holds, in a folder, and back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import click

from shoal.cli.command import Command
from shoal.cli.console import clean, count, print_json, print_line, to_builtins
from shoal.cli.options import as_json, click_options
from shoal.config.load import Settings
from shoal.core import units
from shoal.errors import UsageError
from shoal.view.formatting import size


@click.command(
    cls=Command,
    examples="""
    shoal backup
    shoal backup /backups/monday --queue redis://queue.internal/0
    shoal backup --queue postgresql://shoal@db.internal/shoal
    """,
)
@click.argument("folder", required=False)
@click.option("--max-pause", metavar="TIME", help="Redis: how long writes may be held up. [8s]")
@as_json
@click_options("look")
def backup(settings: Settings, folder: str | None, max_pause: str | None, as_json: bool) -> None:
    """Copy everything the queue holds to a new FOLDER, as of one moment, while workers go on.

    It holds tasks, records, schedules and tokens: keep it as safe as the queue. See also `shoal restore`.
    """
    from shoal.commands.backup import back_up
    from shoal.queue.backup import MAX_PAUSE

    path = Path(folder or f"shoal-backup-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    done = asyncio.run(back_up(settings, path, max_pause=_seconds(max_pause) if max_pause else MAX_PAUSE))
    if as_json:
        print_json({"folder": done.folder, "seconds": round(done.seconds, 3), **to_builtins(done.manifest)})
        return
    print_line(f"Backed up to {clean(done.folder)}: {size(done.manifest.bytes)}, as of {done.manifest.time}")
    print_line(f"  Restore with: shoal restore {clean(done.folder)}")


@click.command(
    cls=Command,
    examples="""
    shoal restore shoal-backup-20261118-120000
    shoal restore /backups/monday --queue redis://queue.internal/0
    shoal restore /backups/monday --replace    what is there is backed up
    """,
)
@click.argument("folder")
@click.option("--replace", is_flag=True, help="Back up what the queue holds now, remove it, and restore.")
@as_json
@click_options("look")
def restore(settings: Settings, folder: str, replace: bool, as_json: bool) -> None:
    """Make the queue what it was when the backup in FOLDER was made.

    Stop workers and servers first. What was in progress then is fetched again; late answers of old workers are
    refused. Output files are written anew when their run goes on, and what they were is kept.
    """
    from shoal.commands.backup import restore as restore_queue

    def say(words: str) -> None:
        if not as_json:
            print_line(clean(words))

    done = asyncio.run(restore_queue(settings, Path(folder), replace=replace, say=say))
    if as_json:
        print_json(to_builtins(done))
        return
    print_line(f"Restored to {done.manifest.time}: {count(done.runs, 'run')}, {count(done.unfinished)} unfinished")
    if done.unfinished:
        print_line(
            f"  {count(done.open, 'task')} open, {count(done.records, 'record')} of unfinished runs;"
            f" {count(done.voided, 'task')} in progress then will be fetched again"
        )
    print_line("  What happened since is not known: see `shoal doctor` for files that are ahead.")


def _seconds(text: str) -> float:
    try:
        return float(units.seconds()(text))
    except (ValueError, TypeError):
        raise UsageError(f"--max-pause: {text!r} is not understood", hint='a duration such as "8s"') from None
