"""What `shoal submit`, and `shoal run` of a distributed scraper, show when everything is in the queue."""

from __future__ import annotations

from shoal.cli.console import count, print_fields, print_json, print_line
from shoal.cli.hints import print_hint
from shoal.commands.submit import SubmitResult
from shoal.config.load import Settings

MESSAGES = {
    "submitted": "Run {name} is in the queue.",
    "continued": "Run {name} was in the queue already, and continues.",
    "finished": "Run {name} has finished.   --fresh starts a new one",
    "cancelled": "Run {name} was cancelled.   --fresh starts a new one; `shoal cancel --undo {name}` brings it back",
    "interrupted": "Stopped; run it again to resume. What was read so far is in run {name}.",
}


def print_submitted(made: SubmitResult, settings: Settings, *, as_json: bool) -> None:
    print_json(_document(made)) if as_json else _show(made, settings)


def _document(made: SubmitResult) -> dict[str, object]:
    return {
        "status": made.status,
        "run_id": made.run.name,
        "scraper": made.run.scraper,
        "enqueued": made.enqueued,
        "known": made.known,
        "seen": made.seen,
        "rejected": made.rejected,
        "rejected_file": made.rejects or None,
        "worker_command": made.worker_command,
        "notes": list(made.notes),
    }


def _show(made: SubmitResult, settings: Settings) -> None:
    print_line(MESSAGES[made.status].format(name=made.run.name))
    pairs: list[tuple[str, object]] = [
        ("status", made.status),
        ("run_id", made.run.name),
        ("enqueued", count(made.enqueued)),
    ]
    if made.known:
        pairs.append(("known", f"{count(made.known)} already there"))
    if made.seen:
        pairs.append(("seen", f"{count(made.seen)} seen in earlier runs ({made.run.seen_set})"))
    if made.failing:
        pairs.append(("failing", f"{count(made.failing)} failed too often before"))
    if made.rejected:
        pairs.append(("rejected", f"{count(made.rejected)} not fetchable"))
    if made.rejects:
        pairs.append(("aside", made.rejects))
    print_fields(pairs)
    for note in made.notes:
        print_hint(f"  {note}")
    if made.status in ("submitted", "continued", "interrupted"):
        if settings.state_file is not None:
            print_line(f"Workers on this machine can serve it: the queue is the file {settings.state_file}.")
        print_line("Start workers, here or on any machine that has the code:")
        print_line(f"  {made.worker_command}")
        print_hint(f"Follow it:  shoal watch {made.run.name}")
