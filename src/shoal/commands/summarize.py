"""What a run came to: how it ended, what was written, and why there may be nothing in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from shoal.config.load import Settings
from shoal.core.run import Run
from shoal.core.run_counters import cache_usage, sitemap_usage
from shoal.core.stats import Stats
from shoal.queue.base import Queue
from shoal.runs.finish import rejected_file, write_files
from shoal.runs.list_reader import load_report
from shoal.runs.list_report import ListReport, describe_rejected
from shoal.runs.no_records import NoRecords, explain_no_records, is_without_records, wants_records
from shoal.runs.outputs import RunOutputs
from shoal.runs.progress import RunEnd, RunSummary
from shoal.runs.record_notes import dropped_note, empty_field_notes, is_nothing_filled
from shoal.runs.request import RunRequest
from shoal.store.export import Exporter
from shoal.view.blocks import describe_noticed
from shoal.view.budget import budget_use, describe_spent
from shoal.view.changes import count_changes, describe_changes
from shoal.view.formatting import relative_path
from shoal.view.no_records import shell_command

if TYPE_CHECKING:
    from shoal.runs.fill_rates import FieldRates

SAMPLE_PAGES = 50  # looked at for one with a record
PREVIEW_RECORDS = 3  # records, where no output was asked for


async def summarize_run(
    queue: Queue,
    run: Run,
    stats: Stats,
    request: RunRequest,
    settings: Settings,
    outputs: RunOutputs,
    exporter: Exporter | None,
    *,
    output: str,
) -> RunSummary:
    """Finish its files, and say what became of it."""
    no_records = await _explain_no_records(queue, run, stats, request)
    end = _end_of(run, stats)
    nothing_added = request.input is not None and not stats.seen and not run.seen_set  # no line was a URL
    counters = await queue.run_counters(run.id)
    is_nothing_in_them = request.template is None and is_nothing_filled(counters)
    if end == "complete" and (nothing_added or ((no_records or is_nothing_in_them) and (output or wants_records(run)))):
        end = "no_records"
    dead = tuple(await queue.dead_groups(run.id, limit=100_000))
    files = await write_files(queue, run, exporter, settings, dead) if exporter else []
    rejected = rejected_file(run, output, settings)
    report = load_report(settings.state_folder, run) if request.input else ListReport()
    if request.input and rejected.exists():
        files.append((str(rejected), report.not_added, describe_rejected(report, request.input.source.unit)))
    fill: FieldRates = ()
    warnings: tuple[str, ...] = ()
    if request.chosen_fields and stats.records:
        from shoal.runs.fill_rates import read_fill_rates  # late: only templates need it

        final = end in ("complete", "dead")
        fill, warnings = await read_fill_rates(queue, outputs.records, run, request.chosen_fields, final=final)
    warnings += await _record_notes(queue, run, stats, request, settings, counters)
    page = ""
    if end in ("complete", "dead") and fill and not any(filled for _, filled, _ in fill):
        end, page = "no_records" if end == "complete" else end, await _first_page(outputs, run)
    first = () if exporter else await outputs.records.records(run.id, limit=PREVIEW_RECORDS)
    changes = await count_changes(queue, run) if settings.changed_only else None
    budget = await budget_use(queue, run, counters)
    return RunSummary(
        run=run,
        stats=stats,
        end=end,
        output=relative_path(output),
        rows=exporter.rows if exporter else 0,
        dead=dead,
        changes=describe_changes(changes) if changes is not None else "",
        files=tuple((relative_path(name), rows, words) for name, rows, words in files),
        fill=fill,
        warnings=(*warnings, *(exporter.notes if exporter else ())),
        no_records=no_records,
        now=await queue.now(),
        beyond=report.beyond,
        sitemaps=sitemap_usage(counters, stats),
        budget=describe_spent(budget, run) if budget is not None else "",
        spent=budget.spent if budget is not None else "",
        cache=cache_usage(counters),
        empty_page=page,
        first=tuple(msgspec.json.decode(record.data) for record in first),
    )


async def _first_page(outputs: RunOutputs, run: Run) -> str:
    """The page of the first record."""
    for record in await outputs.records.records(run.id, limit=1):
        return str(msgspec.json.decode(record.data).get("url") or "")
    return ""


async def _record_notes(
    queue: Queue, run: Run, stats: Stats, request: RunRequest, settings: Settings, counters: Mapping[str, int]
) -> tuple[str, ...]:
    """What is odd about the records."""
    notes: list[str] = []
    if request.template is None and stats.records:  # how the fields of a template are filled is told in a table
        done = await queue.list_tasks(run.id, state="done", limit=SAMPLE_PAGES)
        sample = next((task.url for task in reversed(done) if task.records), "")
        notes += empty_field_notes(counters, request.scraper, *([shell_command(sample)] if sample else []))
    notes.append(describe_noticed(counters))
    dropped = dropped_note(counters, stats, settings.unique) if settings.unique else ""
    return tuple(note for note in (*notes, dropped) if note)


def _end_of(run: Run, stats: Stats) -> RunEnd:
    if run.state in ("running", "paused"):
        return "interrupted"
    if run.state == "cancelled":
        return "cancelled"
    return "dead" if stats.failed else "complete"


async def _explain_no_records(queue: Queue, run: Run, stats: Stats, request: RunRequest) -> NoRecords | None:
    handlers = request.scraper.handlers
    if not is_without_records(run, stats) or (request.scraper.tasks and not handlers):
        return None
    return await explain_no_records(queue, run, stats, [handler.pattern for handler in handlers])
