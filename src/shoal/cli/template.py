"""shoal template check and show."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli.command import Command, Group
from shoal.cli.options import as_json
from shoal.cli.show import clean, count, cut, document, line, paint, plain, table, width, wrapped
from shoal.config import SETTINGS
from shoal.errors import Usage

if TYPE_CHECKING:
    from shoal.extract.template.model import Field, PageKind, Template
    from shoal.extract.template.problem import TemplateError
    from shoal.extract.template.trial import Trial, Tried

_saved_from = re.compile(rb"saved from url=\(\d+\)(https?://[^\s>]+)").search
MOST_RECORDS = 5  # that are shown to people
MOST_BYTES = 32_000_000  # of a saved page


@click.group(
    cls=Group,
    examples="""
    shoal template check books.yaml
    shoal template check books.yaml --page saved.html
    shoal template show books.yaml
    """,
)
def template() -> None:
    """Check templates and try them on saved pages."""


@template.command(
    cls=Command,
    examples="""
    shoal template check books.yaml
    shoal template check books.yaml --page saved.html
    shoal template check books.yaml --page saved.html --url https://shop.example/book/1
    """,
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--page", metavar="FILE", type=click.Path(path_type=Path), help="A saved page to try it on.")
@click.option("--url", metavar="URL", help="The address the saved page came from; decides its kind.")
@click.option("--kind", metavar="NAME", help="Try this page kind, whatever the address.")
@as_json
def check(file: Path, page: Path | None, url: str | None, kind: str | None, as_json: bool) -> int:
    """Say what is wrong with the template in FILE, or what it finds on a saved page."""
    if page is None and (url or kind):
        raise Usage("--url and --kind say which page is tried, and none is given", hint="--page saved.html")
    from shoal.extract.template.problem import TemplateError

    try:
        found = read(file)
    except TemplateError as error:
        if as_json:
            document({"ok": False, "problems": plain(error.problems)})
        else:
            _tell(error, file)
        return 2
    trials = _trials(found, page, url, kind) if page is not None else []
    if as_json:
        _document(found, trials)
    else:
        _show(found, file)
        for trial in trials:
            _show_trial(trial)
    return 3 if any(trial.failed for trial in trials) else 0


@template.command(cls=Command, examples="shoal template show books.yaml --json")
@click.argument("file", type=click.Path(path_type=Path))
@as_json
def show(file: Path, as_json: bool) -> None:
    """Print the page kinds and fields of the template in FILE."""
    found = read(file)
    if as_json:
        document({"version": found.version, **plain(found)})
        return
    _show(found, file)
    for kind in found.pages:
        line()
        line(f"{paint(kind.kind, 'bold')}: {', '.join(kind.match)}")
        rows = [_row(name, field) for name, field in kind.fields.items()]
        if rows:
            table(("field", "type", "from"), rows)
        for text in _leads(kind):
            line(text)


def read(file: Path) -> Template:
    """The template in a file; raises TemplateError with all that is wrong with it."""
    from shoal.extract.template.parse import parse

    def check_setting(name: str, value: object) -> object:
        return SETTINGS[name].read(value, name)

    text = _bytes(file, "template").decode("utf-8-sig", "replace")
    return parse(text, source=file.name, settings=SETTINGS, check_setting=check_setting)


def _bytes(file: Path, what: str) -> bytes:
    try:
        if file.stat().st_size > MOST_BYTES:
            raise Usage(f"{file} is too large for a {what}", hint="a smaller one")
        return file.read_bytes()
    except FileNotFoundError:
        said = "save it first" if what == "page" else f"look for it: ls {file.parent}"
        raise Usage(f"there is no file {file}", hint=said) from None
    except OSError as error:
        raise Usage(f"{file} cannot be read: {error.strerror}", hint=f"give the file of a {what}") from error


def _tell(error: TemplateError, file: Path) -> None:
    many = count(len(error.problems), "problem")
    line(f"shoal: {clean(file)} has {many}", sys.stderr)
    for problem in error.problems:
        place = f"line {problem.line}, column {problem.column}"
        head = f"{place}  {clean(problem.where)}" if problem.where else place
        line(paint(f"  {head}", "bold", sys.stderr), sys.stderr)
        line(wrapped(f"    {clean(problem.message)}", sys.stderr, "    "), sys.stderr)
        if problem.hint:
            line(wrapped(f"    try: {clean(problem.hint)}", sys.stderr, "         "), sys.stderr)


def _trials(found: Template, file: Path, url: str | None, kind: str | None) -> list[Trial]:
    import msgspec

    from shoal.core.page import Response
    from shoal.core.url import canonical
    from shoal.extract.page import Page
    from shoal.extract.template.scraper import TemplateScraper
    from shoal.extract.template.trial import try_page

    if str(file).startswith(("http:", "https:")):
        raise Usage("--page takes a file", hint=f"save the page, then --page saved.html --url {file}")
    kinds = [one.kind for one in found.pages]
    if kind and kind not in kinds:
        raise Usage(f"the template has no page kind {kind}", hint=f"kinds are: {', '.join(kinds)}")
    body = _bytes(file, "page")
    url = url or _address_in(body)
    if not url and not kind and len(kinds) > 1:
        hint = f"--url ADDRESS, or --kind {'|'.join(kinds)}"
        raise Usage("which kind of page it is cannot be told without its address", hint=hint)
    address = canonical(url or next(iter(found.start), "https://page.example/"))
    page = Page(Response(address, 200, (("content-type", _type_of(file)),), body))
    trials = try_page(TemplateScraper(found), page, kind or "")
    if not trials:
        raise Usage(f"no page kind matches {address}", hint=f"--kind {kinds[0]}, or another --url")
    # Without its own address the page is tried as if it were the first one, which says nothing of its kind.
    return trials if url else [msgspec.structs.replace(trial, first=True) for trial in trials]


def _address_in(body: bytes) -> str:
    """Where a browser says it saved the page from."""
    saved = _saved_from(body[:2000])
    return saved[1].decode("ascii", "replace") if saved else ""


def _type_of(file: Path) -> str:
    return {".json": "application/json", ".xml": "application/xml", ".txt": "text/plain"}.get(
        file.suffix.lower(), "text/html"
    )


def _document(found: Template, trials: list[Trial]) -> None:
    tried = [{**plain(trial), "ok": not trial.failed} for trial in trials]
    document({"ok": not any(trial.failed for trial in trials), "version": found.version, "tried": tried})


def _show(found: Template, file: Path) -> None:
    kinds = count(len(found.pages), "page kind")
    many = count(sum(len(kind.fields) for kind in found.pages), "field")
    line(f"{clean(file)} is in order: {found.name}, {kinds}, {many}.")


def _leads(kind: PageKind) -> Iterator[str]:
    """Where a kind of page leads to, one line per rule."""
    if kind.each:
        yield f"one record for each {clean(kind.each)}"
    for rule in kind.follow:
        places = " ".join(clean(at) for at in (rule.each, rule.at) if at)
        only = f"those that match {', '.join(map(clean, rule.match))}" if rule.match else ""
        most = f"at most {count(rule.max)} of a page" if rule.max else ""
        yield f"follows {', '.join(part for part in (places, only, most) if part)}"
    if kind.usual:
        yield "follows links to pages of a kind"
    if kind.paging:
        most = f", at most {count(kind.paging.max)} pages" if kind.paging.max else ""
        yield f"next page {clean(kind.paging.next)}{most}"


def _row(name: str, field: Field) -> tuple[str, str, str]:
    kind = "record" if field.fields else str(field.type)
    kind = f"list of {kind}" if field.list else kind
    return name, kind + (", required" if field.required else ""), str(field.at)


def _show_trial(trial: Trial) -> None:
    line()
    after = "" if trial.first else "; an earlier kind takes such a page first"
    line(f"{paint(trial.kind, 'bold')}: {count(len(trial.records), 'record')}{after}")
    for number, record in enumerate(trial.records[:MOST_RECORDS], 1):
        if len(trial.records) > 1:
            line(paint(f"  record {number}", "dim"))
        size = max(len(one.field) for one in record)
        for one in record:
            line(cut(f"  {one.field.ljust(size)}  {_value(one)}", width()))
    if len(trial.records) > MOST_RECORDS:
        line(f"  and {count(len(trial.records) - MOST_RECORDS, 'more record')}; all of them: --json")
    if trial.links:
        line(f"  follows {count(len(trial.links), 'link')}, the first to {clean(trial.links[0])}")


def _value(one: Tried) -> str:
    import msgspec

    value = one.value
    text = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    if one.fatal:
        return paint(f"fails: {clean(one.problem)}", "red")
    if one.problem:
        return f"{clean(text)}  ".lstrip() + paint(f"({clean(one.problem)})", "yellow")
    return clean(text)
