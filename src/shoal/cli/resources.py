"""shoal resources."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.console import clean, count, paint, print_fields, print_json, size
from shoal.cli.options import as_json, click_options
from shoal.config.load import Settings


@click.command(
    cls=Command,
    examples="""
    shoal resources
    shoal resources --pending 5000        how many workers for 5,000 tasks?
    shoal resources --memory-per-worker 1GB --json
    """,
)
@click.option("--pending", type=click.IntRange(0), help="Tasks to plan for; default: those in the queue.")
@as_json
@click_options("scale")
def resources(settings: Settings, pending: int | None, as_json: bool) -> int:
    """Show what this machine or container has, whether it can take more workers, and what limits it.

    In a container its control group (cgroup v1 or v2) decides, not the machine.
    """
    from shoal.commands.resources import resource_report
    from shoal.view.machines import resources_document

    report = resource_report(settings, pending)
    have, verdict = report.have, report.verdict
    if as_json:
        print_json(resources_document(have, verdict, report.workers) | {"pending": report.pending})
        return 0
    where = f" ({have.limited_by})" if have.limited_by else ""
    more = f"{count(verdict.can_add, 'more worker')}" if verdict.can_add else paint("no more workers", "yellow")
    pairs: list[tuple[str, object]] = [
        ("cpu", f"{have.cores:g} cores" + (f", {have.cpu:.0%} in use" if have.cpu is not None else "")),
        ("load", "" if have.load is None else f"{have.load:.2f}"),
        ("memory", f"{size(have.memory_used)} of {size(have.memory_total)} in use{where}" if have.memory_total else ""),
        ("disk", f"{size(have.disk_free)} of {size(have.disk_total)} free" if have.disk_total else ""),
        ("open files", f"{count(have.files_limit)} per process" if have.files_limit else ""),
        ("workers here", count(report.workers) if not report.why_unknown else f"unknown: {clean(report.why_unknown)}"),
        ("can take", f"{more}: {verdict.limit}"),
        ("suits", f"{count(verdict.most, 'worker')} in all"),
    ]
    if report.pending is not None:
        pairs.append(("best now", f"{count(verdict.best, 'worker')} for {count(report.pending, 'pending task')}"))
    if verdict.pressure:
        words = "less" if verdict.pressure == "slow" else "nothing"
        pairs.append(("pressure", paint(f"workers here claim {words}: {verdict.pressure_reason}", "red")))
    print_fields([(name, value) for name, value in pairs if value != ""])
    return 0
