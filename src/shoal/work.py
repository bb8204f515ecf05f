"""Work: what a command asks to be done, told apart by what was typed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from shoal.app import TEMPLATE
from shoal.config import SETTINGS, Settings
from shoal.control.runs import run_key
from shoal.core.task import Task
from shoal.errors import Usage
from shoal.extract import registry
from shoal.extract.registry import Listed
from shoal.extract.scraper import Scraper
from shoal.logs import redact
from shoal.queue.base import Queue
from shoal.sources.given import Given
from shoal.sources.kind import check_together, kind_of
from shoal.sources.open import Input, open_input
from shoal.travelling import spec_settings

if TYPE_CHECKING:
    from shoal.extract.template import Template

# Whoever started it works on it alone; or workers anywhere; or the processes of a control room.
Mode = Literal["single", "distributed", "here"]

_odd = re.compile(r"[^a-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Work:
    scraper: Scraper
    target: str = ""  # the code that worker processes load; empty where there is a template
    typed: str = ""  # the same as a person wrote it
    template: Template | None = None
    input: Input | None = None  # addresses beside the scraper's own; each is to be accounted for
    chosen: frozenset[str] = frozenset()  # fields that somebody chose, whose filling is worth a word

    @property
    def identity(self) -> list[str]:
        """What makes it the same work when the command is given again."""
        parts = list(self.scraper.start)
        if self.template is not None:
            parts.append(self.template.version)
        if self.input is not None:
            parts.append(self.input.identity)
        return parts

    @property
    def label(self) -> str:
        if self.input is not None:
            return self.input.source.name
        return f"{'template' if self.template else 'scraper'} {self.scraper.name}"


def work_of(
    settings: Settings, target: str, inputs: Sequence[str], fields: Mapping[str, str], column: str
) -> Work:
    kind = kind_of(target)
    if kind != "address":  # after an address each word is judged by itself, as a line of a list is
        check_together(target, inputs, fields, column)
    folder = settings.state_folder / "inputs"
    if kind == "scraper":
        _check_inputs(target, inputs)
        listed = _loaded(target, settings.scrapers)
        given = _input(inputs, column, folder) if inputs else None
        return Work(listed.scraper, listed.target, target, input=given)
    from shoal.extract.template import from_fields, summary  # late: a scraper needs none of it

    if kind == "template":
        template = read_template(Path(target))
        chosen = frozenset(name for page in template.pages for name in page.fields)
        return _templated(template, _input(inputs, column, folder) if inputs else None, chosen)
    name = _odd.sub("-", Path(target).stem.lower() if kind == "list" else "pages").strip("-_")[:64] or "list"
    template = from_fields(name, fields) if fields else summary(name)
    chosen = frozenset(template.pages[0].fields) - {"url"} if fields else frozenset[str]()
    return _templated(template, _input((target, *inputs), column, folder), chosen)


def read_template(path: Path) -> Template:
    """A template from its file, checked whole, its settings included."""
    from shoal.extract.template import parse

    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"{path} cannot be read: {error}", hint="a template is a text file in UTF-8") from error
    return parse(
        text,
        source=path.name,
        settings=SETTINGS,
        check_setting=lambda name, value: SETTINGS[name].read(value, name),
    )


def _templated(template: Template, given: Input | None, chosen: frozenset[str]) -> Work:
    from shoal.extract.template import TemplateScraper

    scraper = TemplateScraper(template)
    if given is None and not scraper.start:
        raise Usage(
            f"template {template.name} has no start address",
            hint="write start: https://… in it, or give a list or addresses after it",
        )
    return Work(scraper, template=template, input=given, chosen=chosen)


def _input(words: Sequence[str], column: str, folder: Path) -> Input:
    if kind_of(words[0]) == "list":
        return open_input(words[0], column, folder)
    return Input(Given(words), " ".join(words))


def _check_inputs(target: str, inputs: Sequence[str]) -> None:
    kinds = {kind_of(word) for word in inputs}
    if kinds - {"list", "address"} or ("list" in kinds and inputs[1:]):
        raise Usage(
            f"{' '.join(inputs)}: a scraper takes one list, or addresses, to start from",
            hint=f"shoal run {target} urls.txt, or put its addresses into start=[…]",
        )


def _loaded(target: str, known: Sequence[str]) -> Listed:
    try:
        return registry.one(target, known)
    except SystemExit as error:
        raise Usage(
            f"{target} ends the program with SystemExit: {error}", hint="let it only make a scraper"
        ) from error


async def spec_of(
    queue: Queue, work: Work, settings: Settings, *, mode: Mode, command: str = "", output: str = ""
) -> dict[str, Any]:
    """What is kept with a run: enough for any worker to serve it, and what people may want to see."""
    code = work.scraper.settings if work.target else None
    spec: dict[str, Any] = {
        "scraper": work.scraper.name,
        "mode": mode,
        "settings": spec_settings(settings, secret=mode == "single", code=code),
        "start": list(work.scraper.start[:100]),
        "each": work.input is not None,
        "output": output,
    }
    if command:
        spec["command"] = redact(command)
    if work.target:
        spec["code"] = {"target": work.typed, "version": registry.version_of(work.scraper)}
    if work.input is not None:
        spec["input"] = work.input.source.name
    return spec | await template_spec(queue, work)


def shared_key(work: Work, tasks: Sequence[Task]) -> str:
    """The identity of work that anybody may join in."""
    return run_key(work.scraper.name, [*(task.url for task in tasks), *work.identity], "fleet")


async def template_spec(queue: Queue, work: Work) -> dict[str, Any]:
    """Keep the template in the queue; what its run has to remember to serve it."""
    if work.template is None:
        return {}
    text = msgspec.json.encode(work.template).decode()
    paper = await queue.keep_paper(TEMPLATE, work.scraper.name, text)
    return {"template": paper.name, "template_version": paper.version}


def notes_on(work: Work) -> Iterator[str]:
    """What people should know before it begins."""
    if not work.scraper.handlers and not work.scraper.tasks:
        yield f"Scraper {work.scraper.name} has no handler (@….page), so no record will be made."
