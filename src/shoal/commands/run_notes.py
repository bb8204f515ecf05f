"""Run notes: what people should know about a run before its first page."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from shoal import app
from shoal.commands.reread import REREAD_KEY
from shoal.commands.submit import seen_set_note
from shoal.config.changed_settings import SettingChange
from shoal.config.load import Settings
from shoal.core.lane import Pace
from shoal.core.run import Run
from shoal.extract import registry
from shoal.runs.identity import run_code_version
from shoal.runs.request import RunRequest, request_notes
from shoal.view.formatting import count, format_pace


def run_notes(run: Run, settings: Settings, request: RunRequest, changes: Sequence[SettingChange]) -> Iterator[str]:
    """What differs from when it began, and what is odd about it."""
    limit, asked = run.max_pages, settings.max_pages
    if asked != limit and (asked or limit):
        fixed = count(limit, "page") if limit else "none"
        yield f"The page limit of this run: {fixed}.   --max-pages changes it, --fresh starts over"
    if not run.spec.get(REREAD_KEY):  # what is read again was seen before
        yield from seen_set_note(run, settings)
    if settings.workers == 0:
        yield "Working in this process: breakpoint() works, and no time limit ends a handler."
    if changes:
        yield f"Set otherwise than the last time, for the pages still to come: {'; '.join(map(str, changes))}."
    began, now = run_code_version(run), registry.version_of(request.scraper)
    if request.target and began and began != now:
        yield f"The code has changed since this run began ({began}, now {now}).{_reread_words(run, settings, request)}"
    yield from request_notes(request)


def _reread_words(run: Run, settings: Settings, request: RunRequest) -> str:
    """How the new code gets at the pages of a scraper's run that has ended; lists have --reread."""
    if run.state != "finished" or request.input is not None:
        return ""
    if settings.keep_raw:
        return f" With --from-raw {run.name} and another -o it reads the saved pages."
    return " Its pages were not saved; with --keep-raw, the next ones can be read again without fetching them."


def describe_pace(settings: Settings, request: RunRequest, met: Collection[Pace]) -> str:
    """met: the paces of the hosts of a list, as far as it was read."""
    rule = app.pace_rule(settings)
    if request.input:
        paces = set(met) or {rule("example.com")}
    else:
        paces = {rule(task.lane) for task in app.seed_tasks(request.scraper, settings)[0]}
    spacing = max(pace.spacing for pace in paces)
    if not spacing:
        return "as fast as the site answers"
    return f"at most {format_pace(spacing)} per site"
