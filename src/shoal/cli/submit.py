"""shoal submit."""

from __future__ import annotations

import shlex
import sys
import time

import click

from shoal.cli.command import GIVEN, Command
from shoal.cli.options import as_json, click_options
from shoal.cli.run import read_fields
from shoal.cli.show import count, document, fields, line, wrapped
from shoal.config import Settings
from shoal.errors import Usage
from shoal.submitting import Submitted, submit_command

LINE_EVERY = 5.0
INTERRUPTED = 4
WORDS = {
    "submitted": "Run {name} is in the queue.",
    "continued": "Run {name} was in the queue already, and goes on.",
    "finished": "Run {name} of this has finished.   --fresh starts a new one",
    "cancelled": "Run {name} of this was cancelled.   --fresh starts a new one",
    "interrupted": "Stopped; the same command goes on. Run {name} is in the queue as far as it was read.",
}


@click.command(
    cls=Command,
    examples="""
    shoal submit books.py                        its start addresses
    shoal submit books.py --urls-file urls.txt   addresses for its handlers
    shoal submit urls.txt -f title=h1::text      a list, without code
    shoal submit shop.yaml --priority 10 --json  a template, the answer as JSON
    """,
)
@click.argument("target", metavar="TARGET", type=click.Path(allow_dash=True), required=False)
@click.argument("inputs", nargs=-1, metavar="[MORE]...")
@click.option("--urls-file", metavar="FILE", help="A list of addresses to start from; - is a pipe.")
@click.option(
    "-f",
    "--field",
    "given_fields",
    multiple=True,
    metavar="NAME=SELECTOR",
    help="A field of each record, for lists and addresses; may be given several times.",
)
@click.option("--column", metavar="NAME", help="Which column of a list holds the addresses.")
@click.option("--fresh", is_flag=True, help="Start over instead of going on.")
@click.option(
    "--weight",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Its share of the workers beside other runs.",
)
@click.option("--priority", type=int, default=0, show_default=True, help="Of its start addresses.")
@as_json
@click_options("run")
def submit(
    settings: Settings,
    target: str | None,
    inputs: tuple[str, ...],
    urls_file: str | None,
    given_fields: tuple[str, ...],
    column: str | None,
    fresh: bool,
    weight: int,
    priority: int,
    as_json: bool,
) -> int:
    """Put a run into the queue for workers anywhere, and say how to start one.

    TARGET is a scraper (FILE.py[:NAME], a module or a name), a template (.yaml), a list or an address, as
    with shoal run; a scraper or a template may be followed by a list or by addresses to start from.

    Stop it with Ctrl-C, or let it crash: the same command goes on where it stopped.

    Exit status: 0 everything is in the queue, 4 interrupted, 2 wrong usage, 1 internal.
    """
    if not target:
        raise Usage(
            "say what to submit: a scraper (FILE.py), a list (urls.txt) or an address",
            hint="shoal submit books.py --urls-file urls.txt",
        )
    if urls_file and inputs:
        raise Usage("give the addresses once", hint=f"--urls-file {urls_file}, or {' '.join(inputs)}")
    from shoal.logs import setup

    setup(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    given = click.get_current_context().meta[GIVEN]
    progress = Progress()
    try:
        made = submit_command(
            settings,
            target=target,
            inputs=(urls_file,) if urls_file else inputs,
            fields=read_fields(given_fields),
            column=column or "",
            fresh=fresh,
            weight=weight,
            priority=priority,
            command=shlex.join(["shoal", "submit", *(word for word in given if word != "--fresh")]),
            look=progress.show,
        )
    except KeyboardInterrupt:
        progress.clear()
        line("Stopped. Nothing is lost; the same command goes on.", sys.stderr)
        return INTERRUPTED
    finally:
        progress.clear()
    document(_document(made)) if as_json else _show(made, settings)
    return INTERRUPTED if made.status == "interrupted" else 0


def _show(made: Submitted, settings: Settings) -> None:
    line(WORDS[made.status].format(name=made.run.name))
    pairs: list[tuple[str, object]] = [
        ("status", made.status),
        ("run_id", made.run.name),
        ("enqueued", count(made.enqueued)),
    ]
    if made.known:
        pairs.append(("known", f"{count(made.known)} already there"))
    if made.rejected:
        pairs.append(("rejected", f"{count(made.rejected)} that lead to no request"))
    if made.rejects:
        pairs.append(("aside", made.rejects))
    fields(pairs)
    for note in made.notes:
        line(wrapped(f"  {note}", indent="  "))
    if made.status in ("submitted", "continued", "interrupted"):
        if settings.state_file is not None:
            line(f"Workers of this machine can serve it: the queue is the file {settings.state_file}.")
        line("Start workers, here or on any machine that has the code:")
        line(f"  {made.worker_command}")
        line(f"Follow it:  shoal watch {made.run.name}")


def _document(made: Submitted) -> dict[str, object]:
    return {
        "status": made.status,
        "run_id": made.run.name,
        "scraper": made.run.scraper,
        "enqueued": made.enqueued,
        "known": made.known,
        "rejected": made.rejected,
        "rejected_file": made.rejects or None,
        "worker_command": made.worker_command,
        "notes": list(made.notes),
    }


class Progress:
    """How far a long list was read: one line on a terminal, one now and then elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = 0
        self._next = time.monotonic() + (1.0 if self._terminal else LINE_EVERY)

    def show(self, read: int, added: int) -> None:
        if time.monotonic() < self._next:
            return
        text = f"{count(read, 'line')} read, {count(added)} added"
        if self._terminal:
            self._next = time.monotonic() + 0.1
            sys.stderr.write("\r" + text.ljust(self._shown))
            sys.stderr.flush()
            self._shown = len(text)
        else:
            self._next = time.monotonic() + LINE_EVERY
            line(text, sys.stderr)

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r" + " " * self._shown + "\r")
            sys.stderr.flush()
            self._shown = 0
