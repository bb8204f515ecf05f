"""shoal doctor: checks this machine, the queue and the store, each finding with its fix."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from shoal.cli.command import Command
from shoal.cli.console import clean, paint, print_fields, print_json, print_line, to_builtins, wrap
from shoal.cli.options import as_json, click_options
from shoal.config.load import Settings
from shoal.queue.base import Finding, Promises
from shoal.queue.promises import DURABLE, OVER_HTTP, OVER_RABBITMQ, SHARED_BY
from shoal.queue.registry import BACKENDS, Backend, find_backend

COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "wrong": "red"}
INDENT = "           "


@click.command(
    cls=Command,
    examples="""
    shoal doctor
    shoal doctor --queue redis://queue.internal/0
    shoal doctor --queue https://shoal.example     and the queue behind it
    shoal doctor --json | jq '.findings[] | select(.level != "ok")'
    """,
)
@click.option("-q", "--quiet", is_flag=True, help="Only show problems.")
@as_json
@click_options("look")
def doctor(settings: Settings, quiet: bool, as_json: bool) -> int:
    """Check this machine, the queue and the store; exit status 1 if something is wrong."""
    from shoal.view.doctor import run_checks

    report = asyncio.run(run_checks(settings))
    own = find_backend(settings.queue)
    served = own is not None and own.promises is None
    backend = own
    if served:  # what it keeps its queue in; None where it was not reached, or does not say
        backend = next((it for it in BACKENDS if it.promises and it.name == report.behind), None)
    wrong = any(finding.level == "wrong" for finding in report.findings)
    if as_json:
        table = _promised(backend, report.promises)
        more = {f"over_{own.name}": _added(own)} if own is not None and served else {}
        found, name = to_builtins(report.findings), backend and backend.name
        print_json({"ok": not wrong, "findings": found, "backend": name, "promises": table, **more})
    else:
        _show([finding for finding in report.findings if not quiet or finding.level != "ok"])
        if not quiet:
            _show_promises(backend, report.promises, own if served else None)
    return 1 if wrong else 0


def _show(findings: list[Finding]) -> None:
    for finding in findings:
        level = paint(finding.level.ljust(7), COLOURS[finding.level])
        text = wrap(f"  {finding.level.ljust(7)}  {clean(finding.words)}", indent=INDENT)
        print_line(text.replace(finding.level.ljust(7), level, 1))
        if finding.fix:
            print_line(wrap(f"{INDENT}try: {clean(finding.fix)}", indent=f"{INDENT}     "))


def _added(way: Backend) -> dict[str, str]:
    """What stands between us and the queue, and adds to what it promises."""
    return OVER_RABBITMQ if way.name == "rabbitmq" else OVER_HTTP


def _show_promises(backend: Backend | None, found: Promises | None, way: Backend | None) -> None:
    middle = "relay" if way is not None and way.name == "rabbitmq" else "server"
    if backend is not None:
        behind = f", behind the {middle}," if way is not None else ""
        print_line()
        print_line(f"What {backend.title or backend.label}{behind} promises")
    elif found is not None:
        print_line()
        print_line(f"What the queue behind the {middle} promises")
    if backend is not None or found is not None:
        print_fields(list(_promised(backend, found).items()))
    if way is not None:
        print_line()
        print_line("What RabbitMQ adds" if middle == "relay" else "What HTTP adds")
        print_fields(list(_added(way).items()))


def _promised(backend: Backend | None, found: Promises | None) -> dict[str, Any]:
    """The table for one backend; what survives depends on the server, if it was reached."""
    table = backend.promises.rows() if backend is not None and backend.promises is not None else {}
    if found is None:
        return table
    return table | {DURABLE: found.durable} | ({SHARED_BY: found.shared} if backend is None else {})
