"""Work: what a command asks to be done, told apart by what was typed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.app import TEMPLATE
from shoal.config import SETTINGS, Settings
from shoal.errors import Usage
from shoal.extract.load import load
from shoal.extract.scraper import Scraper
from shoal.queue.base import Queue
from shoal.sources.given import Given
from shoal.sources.kind import check_together, kind_of
from shoal.sources.open import Input, open_input

if TYPE_CHECKING:
    from shoal.extract.template import Template

_odd = re.compile(r"[^a-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Work:
    scraper: Scraper
    target: str = ""  # the code that worker processes load; empty where there is a template
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
    if kind == "scraper":
        return Work(_loaded(target, inputs), _absolute(target))
    folder = settings.state_folder / "inputs"
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


def _loaded(target: str, inputs: Sequence[str]) -> Scraper:
    if inputs:
        raise Usage(
            f"{inputs[0]}: a scraper takes no further inputs", hint="put its addresses into start=[…]"
        )
    try:
        return load(target)
    except SystemExit as error:
        raise Usage(
            f"{target} ends the program with SystemExit: {error}", hint="let it only make a scraper"
        ) from error


def _absolute(target: str) -> str:
    """A file is found from any folder, a module by its name."""
    place, colon, name = target.partition(":")
    return f"{Path(place).resolve()}{colon}{name}" if Path(place).is_file() else target


async def template_spec(queue: Queue, work: Work) -> dict[str, Any]:
    """Keep the template in the queue; what its run has to remember to serve it."""
    if work.template is None:
        return {}
    text = msgspec.json.encode(work.template).decode()
    paper = await queue.keep_paper(TEMPLATE, work.scraper.name, text)
    return {"template": paper.name, "template_version": paper.version}


def notes_on(work: Work) -> Iterator[str]:
    """What people should know before it begins."""
    if not work.scraper.handlers:
        yield f"Scraper {work.scraper.name} has no handler (@….page), so no record will be made."
