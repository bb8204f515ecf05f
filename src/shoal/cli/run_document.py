"""The summary of a run for programs: one JSON document on stdout, while people read stderr."""

from __future__ import annotations

from typing import Any

from shoal.cli.console import print_json, to_builtins
from shoal.runs.no_records import NO_RECORDS
from shoal.runs.progress import RunInfo, RunProgress, RunSummary, RunUi
from shoal.view.dead_letters import count_by_cause
from shoal.view.documents import run_document


class JsonSummary:
    """A display that also prints the summary as JSON when the run ends."""

    def __init__(self, ui: RunUi) -> None:
        self._ui = ui

    def start(self, info: RunInfo) -> None:
        self._ui.start(info)

    def update(self, progress: RunProgress) -> None:
        self._ui.update(progress)

    def message(self, text: str) -> None:
        self._ui.message(text)

    def finish(self, summary: RunSummary) -> None:
        self._ui.finish(summary)
        print_json(summary_document(summary))

    def close(self) -> None:
        self._ui.close()


def summary_document(summary: RunSummary) -> dict[str, Any]:
    """How a run ended, with the counts of `shoal runs --json`."""
    return {
        **run_document(summary.run, summary.stats),
        "end": summary.end,
        "cause": f"budget.{summary.spent}" if summary.spent else NO_RECORDS if summary.end == NO_RECORDS else None,
        "seconds": round(summary.seconds, 3),
        "output": summary.output or None,
        "files": [{"name": name, "rows": rows, "what": words or None} for name, rows, words in summary.files],
        "fields": [{"name": name, "filled": filled, "total": total} for name, filled, total in summary.fill],
        "dead_by_cause": count_by_cause(summary.dead),
        "no_records": to_builtins(summary.no_records),
        "warnings": list(summary.warnings),
        "resume_command": summary.resume_command if summary.end == "interrupted" else None,
    }
