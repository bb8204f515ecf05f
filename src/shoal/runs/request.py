"""The run that a command asks for: scraper, template and input, worked out from what was typed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.config.load import SETTINGS, Settings
from shoal.config.run_settings import settings_to_spec
from shoal.core.sitemap import LOOK_FOR, MARK, is_marked, looks_like_sitemap
from shoal.core.task import Task
from shoal.errors import UsageError
from shoal.extract import registry
from shoal.extract.registry import LocatedScraper
from shoal.extract.scraper import Scraper, sitemap_start
from shoal.logs import redact
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.runs.identity import run_key
from shoal.runs.spec import LIST_COLUMNS_KEY, RunMode, current_user, new_spec
from shoal.sources.arguments import ArgumentSource
from shoal.sources.folder import FolderSource
from shoal.sources.open import Input, PrefetchedSource, open_input
from shoal.sources.target_kind import target_kind, validate_target
from shoal.sources.url_text import with_scheme

if TYPE_CHECKING:
    from shoal.extract.template import Template

_unsafe_chars = re.compile(r"[^a-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class RunRequest:
    scraper: Scraper
    target: str = ""  # the code that worker processes load; empty where there is a template
    typed_target: str = ""  # the same as a person wrote it
    template: Template | None = None
    input: Input | None = None  # URLs beside the scraper's own; each is to be accounted for
    folder: str = ""  # whose files are the pages; empty: they are fetched
    chosen_fields: frozenset[str] = frozenset()  # fields that somebody chose, whose filling is worth a word
    list_columns: tuple[str, ...] = ()  # what else stands in its list and goes into its outputs

    @property
    def identity(self) -> list[str]:
        """What makes it the same request when the command is given again."""
        parts = list(self.scraper.start)
        if self.template is not None:
            parts.append(self.template.version)
        if self.input is not None:
            parts.append(self.input.identity)
        return parts

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of its records, as far as they are known before there is one."""
        pages = self.template.pages if self.template is not None else ()
        return tuple(dict.fromkeys(name for page in pages for name in page.fields))

    @property
    def label(self) -> str:
        if self.input is not None:
            return self.input.source.name
        return f"{'template' if self.template else 'scraper'} {self.scraper.name}"


def parse_run_request(
    settings: Settings,
    target: str,
    inputs: Sequence[str],
    fields: Mapping[str, str],
    column: str,
    *,
    with_columns: bool = False,
    sitemaps: Sequence[str] = (),
) -> RunRequest:
    """with_columns: what stands in a list beside its URLs goes into the records.

    sitemaps: URLs of sitemaps to begin with as well; "1" are those of the sites it begins with.
    """
    kind = target_kind(target)
    if kind != "url":  # after a URL each word is judged by itself, as a line of a list is
        validate_target(target, inputs, fields, column)
    folder = settings.state_folder / "inputs"
    if with_columns and kind not in ("list", "folder", "url") and not inputs:
        raise UsageError("--with-columns is for lists, and none is given", hint=f"shoal run {target} urls.csv")
    if kind == "scraper":
        if with_columns:
            raise UsageError(
                "--with-columns is for lists that are read with -f or a template",
                hint='in a scraper, page.meta["row"] and page.meta["line"] have what stands in the list',
            )
        _check_inputs(target, inputs)
        listed = _load_scraper(target, settings.scrapers)
        given = _open_input(inputs, column, folder) if inputs else None
        add_sitemaps(listed.scraper, sitemaps, given)
        return RunRequest(listed.scraper, listed.target, target, input=given, folder=_folder_of(inputs))
    from shoal.extract.template import from_fields, summary  # late: a scraper needs none of it

    if kind == "template":
        template = read_template(Path(target))
        chosen = frozenset(name for page in template.pages for name in page.fields)
        given = _open_input(inputs, column, folder) if inputs else None
        return replace(_template_request(template, given, chosen, with_columns, sitemaps), folder=_folder_of(inputs))
    if kind in ("list", "folder") and sitemaps:
        raise UsageError(
            "--sitemap is for scrapers, templates and URLs; a list says itself what to fetch",
            hint=f"put sitemap:https://… into {target} as a line" if kind == "list" else "leave --sitemap out",
        )
    name = (
        _unsafe_chars.sub("-", Path(target).resolve().stem.lower() if kind in ("list", "folder") else "pages").strip(
            "-_"
        )[:64]
        or "list"
    )
    template = from_fields(name, fields) if fields else summary(name)
    chosen = frozenset(template.pages[0].fields) - {"url"} if fields else frozenset[str]()
    given = _open_input(_with_sitemaps((target, *inputs), sitemaps), column, folder)
    request = _template_request(template, given, chosen, with_columns)
    return replace(request, folder=_folder_of((target,)))


def read_template(path: Path) -> Template:
    """A template from its file, checked whole, its settings included."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="a template is a text file in UTF-8") from error
    return parse_template(text, path.name)


def parse_template(text: str, source: str) -> Template:
    """A template from its text, checked whole, its settings included."""
    from shoal.extract.template import parse

    def check_setting(name: str, value: object) -> object:
        return SETTINGS[name].read(value, name)

    return parse(text, source=source, settings=SETTINGS, check_setting=check_setting)


def _template_request(
    template: Template, given: Input | None, chosen: frozenset[str], has_columns: bool, sitemaps: Sequence[str] = ()
) -> RunRequest:
    from shoal.extract.template import TemplateScraper, refuse_unknown_columns, with_columns

    if given is not None:
        try:
            refuse_unknown_columns(template, given.source.columns)
        except UsageError:
            given.source.close()
            raise
        if has_columns:
            template = with_columns(template, given.source.columns)
    scraper = TemplateScraper(template)
    add_sitemaps(scraper, sitemaps, given)
    if given is None and not scraper.start:
        raise UsageError(
            f"template {template.name} has no start URL",
            hint="write start: https://… in it, or give a list or URLs after it",
        )
    columns = given.source.columns if given is not None and has_columns else ()
    return RunRequest(scraper, template=template, input=given, chosen_fields=chosen, list_columns=columns)


def _folder_of(words: Sequence[str]) -> str:
    """The folder of saved pages among them."""
    return str(Path(words[0]).resolve()) if words and target_kind(words[0]) == "folder" else ""


def add_sitemaps(scraper: Scraper, sitemaps: Sequence[str], given: Input | None = None) -> None:
    """What --sitemap asks for, beside the start URLs."""
    if sitemaps and given is not None:
        raise UsageError(
            "--sitemap goes with the start URLs of a scraper or template, not with a list of others",
            hint="leave the list out, or put sitemap:https://… into it as a line",
        )
    named = [with_scheme(text) for text in sitemaps if text != LOOK_FOR]
    found = sitemap_start(named, scraper.start) + (sitemap_start(True, scraper.start) if LOOK_FOR in sitemaps else ())
    scraper.start += tuple(mark for mark in dict.fromkeys(found) if mark not in scraper.start)


def _with_sitemaps(words: Sequence[str], sitemaps: Sequence[str]) -> tuple[str, ...]:
    """URLs as they were given, those of sitemaps marked."""
    if target_kind(words[0]) in ("list", "folder"):
        return tuple(words)
    marked = [MARK + word if not is_marked(word) and looks_like_sitemap(with_scheme(word)) else word for word in words]
    named = [MARK + with_scheme(text) for text in sitemaps if text != LOOK_FOR]
    sites = _sites_of(words) if LOOK_FOR in sitemaps else ()
    return tuple(dict.fromkeys((*marked, *named, *sites)))


def _sites_of(words: Sequence[str]) -> tuple[str, ...]:
    """The sites of URLs as they were given, marked as sitemaps."""
    try:
        return sitemap_start(True, tuple(with_scheme(word) for word in words if not is_marked(word)))
    except UsageError:
        raise UsageError(
            f"--sitemap looks for the sitemaps of a site, and {words[0]} is none",
            hint="shoal run https://example.com --sitemap",
        ) from None


def _open_input(words: Sequence[str], column: str, folder: Path) -> Input:
    kind = "url" if is_marked(words[0]) else target_kind(words[0])
    if kind == "list":
        return open_input(words[0], column, folder)
    if kind == "folder":
        return Input(PrefetchedSource(FolderSource(Path(words[0]))), _folder_of(words))
    return Input(ArgumentSource(words), " ".join(words))


def _check_inputs(target: str, inputs: Sequence[str]) -> None:
    given = {target_kind(word) for word in inputs}
    if given - {"list", "folder", "url"} or (given & {"list", "folder"} and inputs[1:]):
        raise UsageError(
            f"{' '.join(inputs)}: a scraper takes one list or folder, or URLs, to start from",
            hint=f"shoal run {target} urls.txt, or put its URLs into start=[…]",
        )


def _load_scraper(target: str, known: Sequence[str]) -> LocatedScraper:
    try:
        return registry.find_scraper(target, known)
    except SystemExit as error:
        raise UsageError(f"{target} exits with SystemExit: {error}", hint="it should only define a scraper") from error


async def run_spec(
    queue: Queue, request: RunRequest, settings: Settings, *, mode: RunMode, command: str = "", output: str = ""
) -> dict[str, Any]:
    """The spec of the run; its template is kept in the queue."""
    scraper, is_code = request.scraper, bool(request.target)
    spec = new_spec(
        scraper.name,
        mode=mode,
        settings=settings_to_spec(settings, secret=mode == "single", code=scraper.settings if is_code else None),
        start=scraper.start,
        each=request.input is not None,
        output=output,
        code=(request.typed_target, registry.version_of(scraper)) if is_code else None,
        template=await _save_template(queue, request),
    )
    spec["submitted_by"] = current_user()
    if command:
        spec["command"] = redact(command)
    if request.input is not None:
        spec["input"] = request.input.source.name
    if request.list_columns:
        spec[LIST_COLUMNS_KEY] = list(request.list_columns)
    return spec


def fleet_run_key(request: RunRequest, tasks: Sequence[Task]) -> str:
    """The key of a run that any worker may join."""
    return run_key(request.scraper.name, [*(task.url for task in tasks), *request.identity], "fleet")


async def _save_template(queue: Queue, request: RunRequest) -> tuple[str, int] | None:
    if request.template is None:
        return None
    text = msgspec.json.encode(request.template).decode()
    document = await queue.save_document(kinds.TEMPLATE, request.scraper.name, text)
    return document.name, document.version


def request_notes(request: RunRequest) -> Iterator[str]:
    """What people should know before it begins."""
    if not request.scraper.handlers and not request.scraper.tasks:
        yield f"Scraper {request.scraper.name} has no handler (@….page), so it will produce no records."
