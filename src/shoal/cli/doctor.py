"""shoal doctor: checks this machine, the queue and the store, each finding with its fix."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.show import clean, document, fields, line, paint, plain, wrapped
from shoal.config import Settings
from shoal.queue.base import Finding, Promises
from shoal.queue.promises import DURABLE, OVER_HTTP, TABLE, TITLES, Backend, backend_of

COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "wrong": "red"}
INDENT = "           "


@click.command(
    cls=Command,
    examples="""
    shoal doctor
    shoal doctor --queue redis://queue.internal/0
    shoal doctor --queue https://shoal.example     what stands behind it, too
    shoal doctor --json | jq '.findings[] | select(.level != "ok")'
    """,
)
@click.option("-q", "--quiet", is_flag=True, help="Only what is not as it should be.")
@as_json
@click_options("look")
def doctor(settings: Settings, quiet: bool, as_json: bool) -> int:
    """Check this machine, the queue and the store; exit status 1 if something is wrong."""
    from shoal.checkup import examine

    report = asyncio.run(examine(settings))
    scheme = settings.queue.partition("://")[0] if settings.state_file is None else "sqlite"
    served = scheme in ("http", "https")
    backend = _behind(report.behind) if served else backend_of(scheme)
    wrong = any(finding.level == "wrong" for finding in report.findings)
    if as_json:
        table = _promised(backend, report.promises)
        more = {"over_http": OVER_HTTP} if served else {}
        found = plain(report.findings)
        document({"ok": not wrong, "findings": found, "backend": backend, "promises": table, **more})
    else:
        _show([finding for finding in report.findings if not quiet or finding.level != "ok"])
        if not quiet:
            _show_promises(backend, report.promises, served)
    return 1 if wrong else 0


def _show(findings: list[Finding]) -> None:
    for finding in findings:
        level = paint(finding.level.ljust(7), COLOURS[finding.level])
        text = wrapped(f"  {finding.level.ljust(7)}  {clean(finding.words)}", indent=INDENT)
        line(text.replace(finding.level.ljust(7), level, 1))
        if finding.fix:
            line(wrapped(f"{INDENT}try: {clean(finding.fix)}", indent=f"{INDENT}     "))


def _behind(said: str) -> Backend | None:
    """What a server keeps its queue in; None where it was not reached, or does not say."""
    return next((backend for backend in TITLES if backend == said), None)


def _show_promises(backend: Backend | None, found: Promises | None, served: bool) -> None:
    if backend is not None:
        behind = ", which stands behind the server," if served else ""
        line()
        line(f"What {TITLES[backend].partition(' (')[0]}{behind} promises")
    elif found is not None:
        line()
        line("What the queue behind the server promises")
    if backend is not None or found is not None:
        fields(list(_promised(backend, found).items()))
    if served:
        line()
        line("What HTTP adds")
        fields(list(OVER_HTTP.items()))


def _promised(backend: Backend | None, found: Promises | None) -> dict[str, Any]:
    """The table for one backend; what survives depends on the server, if it was reached."""
    table = {row.promise: row.of(backend) for row in TABLE} if backend is not None else {}
    if found is None:
        return table
    return table | {DURABLE: found.durable} | ({"shared by": found.shared} if backend is None else {})
