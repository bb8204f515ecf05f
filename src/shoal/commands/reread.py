"""Reread: a run that first reads what an earlier run over the same list saved, and fetches only the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shoal import app
from shoal.config.load import Settings
from shoal.config.replay import settings_for_replay
from shoal.core.run import Run
from shoal.errors import ActionRequired, UsageError
from shoal.queue.base import Queue
from shoal.runs.request import RunRequest
from shoal.runs.saved_pages import SavedPages, find_saved_pages, list_id, revive_not_saved, saved_by
from shoal.view.formatting import count

LIST_KEY = "list"  # of a run's spec: which list it reads
REREAD_KEY = "reread"  # of a run's spec: whose saved pages it reads before it fetches any


class Reread:
    """`pages`: what is read again; None from the moment on where pages are fetched."""

    def __init__(
        self, settings: Settings, request: RunRequest, *, is_wanted: bool, on_message: Callable[[str], None]
    ) -> None:
        self.is_wanted = is_wanted
        self.pages: SavedPages | None = None
        self.is_only = False  # nothing had to be fetched
        self._settings = settings
        self._request = request
        self._on_message = on_message

    @property
    def settings(self) -> Settings:
        """With which workers go about it."""
        if self.pages is None:
            return self._settings
        return replace(settings_for_replay(self._settings), keep_raw=self._settings.keep_raw)

    async def spec(self, queue: Queue) -> dict[str, Any]:
        """What the run's spec says of it."""
        if self._request.input is None:
            return {}
        spec = {LIST_KEY: list_id(self._request.input)}
        if self.is_wanted and (saved := await self._find(queue)):
            spec[REREAD_KEY] = saved.run
        return spec

    async def begin(self, queue: Queue, run: Run) -> None:
        """Look for the pages to read; a run that was begun like this goes on like this."""
        if self.is_wanted:
            self.pages = await self._find(queue, run.name)
            if self.pages is None:
                self._on_message("No pages of this list are saved any more; all of them are fetched.")
        elif name := str(run.spec.get(REREAD_KEY, "")):
            with contextlib.suppress(ActionRequired):  # gone by now: then everything is fetched
                self.pages = await saved_by(queue, self._settings, name)

    async def fetch_rest(self, queue: Queue, run: Run) -> bool:
        """From now on pages are fetched; whether there are any that were not saved."""
        self.pages = None
        left = await revive_not_saved(queue, run, app.pace_rule(self._settings))
        self.is_only = not left
        if left:
            self._on_message(f"{count(left, 'page')} {'was' if left == 1 else 'were'} not saved; fetching.")
        return bool(left)

    async def offer(self, queue: Queue, run: str = "", otherwise: str = "") -> str:
        """How to do without fetching, where there are saved pages and nobody has asked for them."""
        saved = None if self.is_wanted else await self._find(queue, run)
        if saved is None:
            return otherwise
        offer = f"--reread, to read the {count(saved.pages, 'page')} again that run {saved.run} saved"
        return f"{offer}; or {otherwise}" if otherwise else f"This list was read before. Stop, and add {offer}."

    async def _find(self, queue: Queue, besides: str = "") -> SavedPages | None:
        given = self._request.input
        if given is None:
            return None
        runs = await queue.runs(scraper=self._request.scraper.name)
        same = [run.name for run in runs if run.spec.get(LIST_KEY) == list_id(given) and run.name != besides]
        return find_saved_pages(self._settings, same)


def refuse_reread(request: RunRequest, from_raw: str) -> None:
    if from_raw:
        raise UsageError("--reread and --from-raw exclude each other", hint="leave one out")
    if request.folder:
        raise UsageError("--reread is for pages that were fetched", hint="leave it out: a folder is read again anyway")
    if request.input is None or request.template is None:
        raise UsageError(
            "--reread is for lists that are read with -f or a template",
            hint="for a scraper: --keep-raw first, then --from-raw RUN",
        )
    if request.scraper.mode == "distributed":
        raise UsageError("--reread reads what this machine saved, and workers are elsewhere", hint="leave one out")
