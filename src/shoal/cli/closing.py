"""Closing: what a run tells people at its end: what was written, what failed, and what to do next."""

from __future__ import annotations

import json
from collections.abc import Sequence

from shoal.cli.show import cells, clean, count, cut, lasting, size
from shoal.control.report import Summary
from shoal.view.words import account

CAUSES_SHOWN = 5
VALUE_ROOM = 60  # columns for a value of a record that is shown
RARE = 0.5  # a field that fewer records have is pointed out


def closing(summary: Summary) -> list[str]:
    stats, run = summary.stats, summary.run
    words = {
        "complete": "Done",
        "dead": "Done",
        "cancelled": "Cancelled",
        "interrupted": "Stopped",
        "unbalanced": "Ended",
    }[summary.end]
    failed = f"; {count(stats.dead, 'page')} failed" if stats.dead else ""
    after = f" after {lasting(summary.seconds)}" if summary.seconds else ""
    lines = [
        f"{words}{after}: {count(stats.done, 'page')}, "
        f"{count(stats.records, 'record')}, {size(stats.bytes)}{failed}.",
        account(stats),
    ]
    if summary.end in ("complete", "dead") and run.max_pages and stats.cancelled:
        limit = count(run.max_pages, "page")
        lines.append(f"  the limit of {limit} was reached: {count(stats.cancelled)} more were known")
    if stats.skipped:
        reasons = sorted(stats.skipped.items(), key=lambda pair: -pair[1])
        lines.append("  links not followed: " + " · ".join(f"{clean(why)} {count(n)}" for why, n in reasons))
    lines += _files(summary)
    lines += fill_lines(summary.fill)
    lines += [f"  ! {text}" for text in summary.warnings]
    lines += _failures(summary)
    if summary.end == "interrupted":
        lines.append("Nothing is lost." + (" The same command goes on:" if summary.again else ""))
        lines += [f"  {summary.again}"] if summary.again else []
    if summary.end == "unbalanced":
        lines.append("The account does not balance: please keep the state file and report this.")
    return lines


def _files(summary: Summary) -> list[str]:
    """The files written, what is in them; or some of the records, and how to get them into a file."""
    if summary.files:
        room = max(cells(name) for name, _, _ in summary.files)
        figures = max(len(count(rows)) for _, rows, _ in summary.files)
        return [
            f"  {name}{' ' * (room - cells(name))}  {count(rows).rjust(figures)}"
            f" {'row' if rows == 1 else 'rows'}{f': {words}' if words else ''}"
            for name, rows, words in summary.files
        ]
    if summary.output:
        return [f"  {summary.output}   {count(summary.rows, 'row')}"]
    if not summary.stats.records:
        return []
    name = summary.run.name
    return [
        *_first_records(summary),
        f"  write the records to a file: shoal export {name} -o {summary.run.scraper}.jsonl",
    ]


def _first_records(summary: Summary) -> list[str]:
    lines = []
    for record in summary.first:
        pairs = [(name, value) for name, value in record.items() if value not in (None, "", [])]
        lines.append("  · " + "  ".join(f"{name}: {_short(value)}" for name, value in pairs))
    more = summary.stats.records - len(summary.first)
    return [*lines, f"  and {count(more, 'more record')}"] if lines and more > 0 else lines


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut(clean(" ".join(text.split())), VALUE_ROOM)


def fill_lines(fill: Sequence[tuple[str, int, int]]) -> list[str]:
    """How many records have each field; said only where some do not."""
    if all(filled == total for _, filled, total in fill):
        return []
    room = max(cells(name) for name, _, _ in fill)
    lines = ["  filled in:"]
    for name, filled, total in fill:
        share = filled / total if total else 0.0
        mark = "  ← never" if not filled else "  ← rarely" if share < RARE else ""
        percent = min(99, round(100 * share)) if filled < total else 100
        lines.append(
            f"    {clean(name)}{' ' * (room - cells(name))}  {percent:3} %"
            f"  {count(filled)} of {count(total)}{mark}"
        )
    return lines


def _failures(summary: Summary) -> list[str]:
    """What failed, by cause, with the words of one of each; and what can be done about it."""
    causes: dict[str, int] = {}
    said: dict[str, str] = {}
    for group in summary.dead:
        causes[group.cause] = causes.get(group.cause, 0) + group.count
        said.setdefault(group.cause, group.message)
    if not causes:
        return []
    lines = _by_cause(causes, said)
    name = summary.run.name
    lines.append(f"Next: shoal dead {name}            what failed, by host and cause")
    if summary.end in ("complete", "dead"):
        lines.append(f"      shoal revive {name} --all    put it back, then give the same command")
    return lines


def _by_cause(causes: dict[str, int], said: dict[str, str]) -> list[str]:
    ranked = sorted(causes.items(), key=lambda pair: -pair[1])[:CAUSES_SHOWN]
    room = max(len(cause) for cause, _ in ranked)
    lines = [
        f"  failed: {count(n)} × {cause.ljust(room)}  {said[cause] if said[cause] != cause else ''}".rstrip()
        for cause, n in ranked
    ]
    if len(causes) > len(ranked):
        lines.append(f"  failed: … and {count(len(causes) - len(ranked), 'other cause')}")
    return lines
