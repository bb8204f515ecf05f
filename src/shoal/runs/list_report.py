"""ListReport: what became of the lines of a list, counted and in words."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shoal.sources.base import Source, Unit

SEEN_REASON = "seen in earlier runs"
BEYOND_REASON = "past the page limit"
FAILING_REASON = "failed too often before"


class ListReport(msgspec.Struct, frozen=True):
    """What became of the lines read so far; read == added + not_added + empty."""

    read: int = 0
    added: int = 0
    duplicates: int = 0
    rejected: int = 0
    completed: int = 0  # of those added: the scheme was put in front
    beyond: int = 0  # past the run's page limit, so that nothing would be fetched for them
    seen: int = 0  # in earlier runs of the same seen-set
    failing: int = 0  # failed too often in earlier runs (--skip-failing)
    blank: int = 0  # without a URL, or anything that was meant to be one
    empty: int = 0  # of these: with nothing else in them either, so that they are in no file

    @property
    def not_added(self) -> int:
        """Lines that are not URLs to fetch, and are in the file of rejected lines."""
        return self.duplicates + self.rejected + self.beyond + self.seen + self.failing + self.blank - self.empty


def describe_report(report: ListReport, source: Source, rejected: str = "", seen_set: str = "") -> str:
    """One line for people: "Read 500 lines of urls.txt: 488 to fetch, 9 duplicates …"."""
    unit = source.unit if report.read == 1 else f"{source.unit}s"
    verb = "read" if source.unit == "file" else "fetch"
    parts = [f"{report.added:,} to {verb}", *_rejected_parts(report, seen_set, unit=source.unit, with_empty=True)]
    aside = f" (→ {rejected})" if rejected and report.not_added else ""
    text = f"Read {report.read:,} {unit} of {source.name}: {', '.join(parts)}{aside}"
    if report.completed:
        text += f"; {report.completed:,} had no http:// or https://"
    return text


def describe_rejected(report: ListReport, unit: Unit = "line") -> str:
    """What is in the file of rejected lines: "9 duplicates · 3 not URLs"."""
    return " · ".join(_rejected_parts(report, unit=unit))


def _rejected_parts(
    report: ListReport, seen_set: str = "", *, unit: Unit = "line", with_empty: bool = False
) -> Iterator[str]:
    if report.seen:
        yield f"{report.seen:,} {SEEN_REASON}" + (f" ({seen_set})" if seen_set else "")
    if report.failing:
        yield f"{report.failing:,} {FAILING_REASON}"
    if report.duplicates:
        yield f"{report.duplicates:,} duplicate{'s' if report.duplicates > 1 else ''}"
    if report.rejected and unit == "file":
        yield f"{report.rejected:,} outside the folder"
    elif report.rejected:
        yield f"{report.rejected:,} not {'URLs' if report.rejected > 1 else 'a URL'}"
    if blank := report.blank - (0 if with_empty else report.empty):
        yield f"{blank:,} blank"
    if report.beyond:
        yield f"{report.beyond:,} {BEYOND_REASON}"
