"""The summary of a run at its end: what was written, what failed, and what to do next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from shoal.cli.console import clean, count, display_width, format_duration, size, truncate
from shoal.core.counters import CODE_ERRORS, error_class
from shoal.runs.progress import RunSummary
from shoal.view.cache import describe_usage
from shoal.view.common_causes import is_permanent
from shoal.view.formatting import failed_words, format_account, sitemap_words
from shoal.view.no_records import describe_no_records, shell_hint
from shoal.view.page_limit import describe_limit_end

CAUSES_SHOWN = 5
MAX_VALUE_WIDTH = 60  # columns for a value of a record that is shown
NEXT = "Next: "
PRIVATE = "blocked.private"
RARELY_FILLED = 0.5  # a field that fewer records have is pointed out


def summary_lines(summary: RunSummary) -> list[str]:
    stats, run = summary.stats, summary.run
    words = {
        "complete": "Done",
        "dead": "Done",
        "cancelled": "Cancelled",
        "interrupted": "Stopped",
        "unbalanced": "Ended",
        "no_records": "Done",
    }[summary.end]
    failed = f"; {failed} failed" if (failed := failed_words(stats, summary.sitemaps)) else ""
    after = f" after {format_duration(summary.seconds)}" if summary.seconds else ""
    pages = stats.done - (summary.sitemaps.read if summary.sitemaps else 0)
    if summary.is_reread and words == "Done":
        words = "Read again"
    lines = [
        f"{words}{after}: {count(pages, 'page')}, {count(stats.records, 'record')}, {size(stats.bytes)}{failed}.",
        format_account(stats),
    ]
    if summary.sitemaps and summary.sitemaps.read:  # what failed is told above
        lines.append(f"  {sitemap_words(summary.sitemaps)}")
    if words := describe_limit_end(run, stats, summary.now, left=summary.beyond):
        lines.append(f"  {words}")
    if summary.cache is not None:
        lines.append(f"  {describe_usage(summary.cache)}")
    # Links that no handler is for are meant to be left out; where there is nothing else, that is said below.
    reasons = sorted(stats.skipped.items(), key=lambda pair: -pair[1])
    if reasons := [pair for pair in reasons if pair[0] != "no_handler"]:
        lines.append("  links not followed: " + " · ".join(f"{clean(why)} {count(n)}" for why, n in reasons))
    if summary.changes:
        lines.append(f"  {summary.changes}")
    lines += _file_lines(summary)
    lines += fill_lines(summary.fill)
    lines += [f"  ! {text}" for text in summary.warnings]
    lines += _with_one_next([*_empty_lines(summary), *_failure_lines(summary)])
    if summary.budget:
        lines.append(f"Paused: {summary.budget}.")
    elif summary.end == "interrupted":
        lines.append("Nothing is lost." + (" Run it again to resume:" if summary.resume_command else ""))
        lines += [f"  {summary.resume_command}"] if summary.resume_command else []
    if summary.end == "unbalanced":
        lines.append("The counts do not add up: please keep the state file and report this.")
    return lines


def _file_lines(summary: RunSummary) -> list[str]:
    """The files written, what is in them; or some of the records, and how to get them into a file."""
    if summary.files:
        room = max(display_width(name) for name, _, _ in summary.files)
        figures = max(len(count(rows)) for _, rows, _ in summary.files)
        return [
            f"  {name}{' ' * (room - display_width(name))}  {count(rows).rjust(figures)}"
            f" {'row' if rows == 1 else 'rows'}{f': {words}' if words else ''}"
            for name, rows, words in summary.files
        ]
    if summary.output:
        return [f"  {summary.output}   {count(summary.rows, 'row')}"]
    if not summary.stats.records:
        return []
    name = summary.run.name
    return [
        *_record_lines(summary),
        f"  write the records to a file: shoal export {name} -o {shlex.quote(summary.run.scraper + '.jsonl')}",
    ]


def _record_lines(summary: RunSummary) -> list[str]:
    lines = []
    for record in summary.first:
        pairs = [(name, value) for name, value in record.items() if value not in (None, "", [])]
        lines.append("  · " + "  ".join(f"{name}: {_format_value(value)}" for name, value in pairs))
    more = summary.stats.records - len(summary.first)
    return [*lines, f"  and {count(more, 'more record')}"] if lines and more > 0 else lines


def _format_value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return truncate(clean(" ".join(text.split())), MAX_VALUE_WIDTH)


def fill_lines(fill: Sequence[tuple[str, int, int]]) -> list[str]:
    """How many records have each field; said only where some do not."""
    if all(filled == total for _, filled, total in fill):
        return []
    room = max(display_width(name) for name, _, _ in fill)
    lines = ["  filled in:"]
    for name, filled, total in fill:
        share = filled / total if total else 0.0
        mark = "  ← never" if not filled else "  ← rarely" if share < RARELY_FILLED else ""
        percent = min(99, round(100 * share)) if filled < total else 100
        lines.append(
            f"    {clean(name)}{' ' * (room - display_width(name))}  {percent:3} %"
            f"  {count(filled)} of {count(total)}{mark}"
        )
    return lines


def _empty_lines(summary: RunSummary) -> list[str]:
    """Why there is nothing; where the code failed, that is the reason, and it is told with what failed."""
    if summary.empty_page:
        return ["None of the fields was found on any page: the selectors do not fit.", shell_hint(summary.empty_page)]
    if summary.no_records and not any(error_class(group.cause) in CODE_ERRORS for group in summary.dead):
        return describe_no_records(summary.no_records)
    return []


def _failure_lines(summary: RunSummary) -> list[str]:
    """What failed, by cause, with the words of one of each; and what can be done about it."""
    causes: dict[str, int] = {}
    messages: dict[str, str] = {}
    for group in summary.dead:
        causes[group.cause] = causes.get(group.cause, 0) + group.count
        messages.setdefault(group.cause, group.message)
    if not causes:
        return []
    lines = _cause_lines(causes, messages)
    name = summary.run.name
    if PRIVATE in causes:
        lines.append(f"{NEXT}the same command with --allow-private, if these addresses are meant")
    lines.append(f"{NEXT}shoal dead {name}            what failed, by host and cause")
    if summary.end in ("complete", "dead") and not all(map(is_permanent, causes)):
        fixed = "when the code is fixed, " if all(error_class(it) in CODE_ERRORS for it in causes) else ""
        lines.append(f"{NEXT}shoal revive {name} --all    {fixed}requeue it, then run the same command")
    return lines


def _with_one_next(lines: Sequence[str]) -> list[str]:
    """With all next steps at the end, below one word."""
    steps = [line.removeprefix(NEXT) for line in lines if line.startswith(NEXT)]
    prefixes = (NEXT, *[" " * len(NEXT)] * len(steps))
    others = [line for line in lines if not line.startswith(NEXT)]
    return [*others, *(prefix + step for prefix, step in zip(prefixes, steps, strict=False))]


def _cause_lines(causes: dict[str, int], messages: dict[str, str]) -> list[str]:
    ranked = sorted(causes.items(), key=lambda pair: -pair[1])[:CAUSES_SHOWN]
    room = max(len(cause) for cause, _ in ranked)
    lines = [
        f"  failed: {count(n)} × {cause.ljust(room)}  {messages[cause] if messages[cause] != cause else ''}".rstrip()
        for cause, n in ranked
    ]
    if len(causes) > len(ranked):
        lines.append(f"  failed: … and {count(len(causes) - len(ranked), 'other cause')}")
    return lines
