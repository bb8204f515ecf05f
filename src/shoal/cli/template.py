"""shoal template check and show."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli.command import Command, Group
from shoal.cli.console import (
    clean,
    count,
    paint,
    print_json,
    print_line,
    print_table,
    terminal_width,
    to_builtins,
    truncate,
    wrap,
)
from shoal.cli.options import as_json
from shoal.errors import UsageError

if TYPE_CHECKING:
    from shoal.extract.template.model import FieldSpec, PageKind, Template
    from shoal.extract.template.preview import FieldPreview, KindPreview
    from shoal.extract.template.problem import TemplateError

_saved_from = re.compile(rb"saved from url=\(\d+\)(https?://[^\s>]+)").search
MAX_RECORDS_SHOWN = 5  # that are shown to people
MAX_BYTES = 32_000_000  # of a saved page


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
@click.option("--url", metavar="URL", help="The URL the saved page came from; decides its kind.")
@click.option("--kind", metavar="NAME", help="Try this page kind, regardless of the URL.")
@as_json
def check(file: Path, page: Path | None, url: str | None, kind: str | None, as_json: bool) -> int:
    """Check the template in FILE, and show what it finds on a saved page."""
    if page is None and (url or kind):
        raise UsageError("--url and --kind need a page to try", hint="--page saved.html")
    from shoal.extract.template.problem import TemplateError

    try:
        found = read_template(file)
    except TemplateError as error:
        if as_json:
            print_json({"ok": False, "problems": to_builtins(error.problems)})
        else:
            _show_problems(error, file)
        return 2
    previews = _preview_page(found, page, url, kind) if page is not None else []
    if as_json:
        _document(found, previews)
    else:
        _show(found, file)
        for preview in previews:
            _show_preview(preview)
    return 3 if any(preview.failed for preview in previews) else 0


@template.command(cls=Command, examples="shoal template show books.yaml --json")
@click.argument("file", type=click.Path(path_type=Path))
@as_json
def show(file: Path, as_json: bool) -> None:
    """Print the page kinds and fields of the template in FILE."""
    found = read_template(file)
    if as_json:
        print_json({"version": found.version, **to_builtins(found)})
        return
    _show(found, file)
    for kind in found.pages:
        print_line()
        print_line(f"{paint(kind.kind, 'bold')}: {', '.join(kind.match)}")
        rows = [_row(name, field) for name, field in kind.fields.items()]
        if rows:
            print_table(("field", "type", "from"), rows)
        for text in _link_lines(kind):
            print_line(text)


def read_template(file: Path) -> Template:
    """The template in a file; raises TemplateError with all that is wrong with it."""
    from shoal.runs.request import parse_template

    return parse_template(_read_bytes(file, "template").decode("utf-8-sig", "replace"), file.name)


def _read_bytes(file: Path, what: str) -> bytes:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise UsageError(f"{file} is too large for a {what}", hint="a smaller one")
        return file.read_bytes()
    except FileNotFoundError:
        said = "save it first" if what == "page" else f"check with: ls {file.parent}"
        raise UsageError(f"there is no file {file}", hint=said) from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint=f"give the file of a {what}") from error


def _show_problems(error: TemplateError, file: Path) -> None:
    many = count(len(error.problems), "problem")
    print_line(f"shoal: {clean(file)} has {many}", sys.stderr)
    for problem in error.problems:
        place = f"line {problem.line}, column {problem.column}"
        head = f"{place}  {clean(problem.where)}" if problem.where else place
        print_line(paint(f"  {head}", "bold", sys.stderr), sys.stderr)
        print_line(wrap(f"    {clean(problem.message)}", sys.stderr, "    "), sys.stderr)
        if problem.hint:
            print_line(wrap(f"    try: {clean(problem.hint)}", sys.stderr, "         "), sys.stderr)


def _preview_page(found: Template, file: Path, url: str | None, kind: str | None) -> list[KindPreview]:
    import msgspec

    from shoal.core.page import Response
    from shoal.core.url import canonical
    from shoal.extract.page import Page
    from shoal.extract.template.preview import preview_page
    from shoal.extract.template.scraper import TemplateScraper

    if str(file).startswith(("http:", "https:")):
        raise UsageError("--page takes a file", hint=f"save the page, then --page saved.html --url {file}")
    kinds = [one.kind for one in found.pages]
    if kind and kind not in kinds:
        raise UsageError(f"the template has no page kind {kind}", hint=f"kinds are: {', '.join(kinds)}")
    body = _read_bytes(file, "page")
    url = url or _saved_url(body)
    if not url and not kind and len(kinds) > 1:
        hint = f"--url URL, or --kind {'|'.join(kinds)}"
        raise UsageError("the kind of page cannot be known without its URL", hint=hint)
    page_url = canonical(url or next(iter(found.start), "https://page.example/"))
    page = Page(Response(page_url, 200, (("content-type", _type_of(file)),), body))
    previews = preview_page(TemplateScraper(found), page, kind or "")
    if not previews:
        raise UsageError(f"no page kind matches {page_url}", hint=f"--kind {kinds[0]}, or another --url")
    # Without its own URL the page is tried as if it were the first one, which says nothing of its kind.
    return previews if url else [msgspec.structs.replace(preview, is_first=True) for preview in previews]


def _saved_url(body: bytes) -> str:
    """Where a browser says it saved the page from."""
    saved = _saved_from(body[:2000])
    return saved[1].decode("ascii", "replace") if saved else ""


def _type_of(file: Path) -> str:
    return {".json": "application/json", ".xml": "application/xml", ".txt": "text/plain"}.get(
        file.suffix.lower(), "text/html"
    )


def _document(found: Template, previews: list[KindPreview]) -> None:
    tried = [{**to_builtins(preview), "ok": not preview.failed} for preview in previews]
    print_json({"ok": not any(preview.failed for preview in previews), "version": found.version, "tried": tried})


def _show(found: Template, file: Path) -> None:
    kinds = count(len(found.pages), "page kind")
    many = count(sum(len(kind.fields) for kind in found.pages), "field")
    print_line(f"{clean(file)} is valid: {found.name}, {kinds}, {many}.")


def _link_lines(kind: PageKind) -> Iterator[str]:
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


def _row(name: str, field: FieldSpec) -> tuple[str, str, str]:
    kind = "record" if field.fields else str(field.type)
    kind = f"list of {kind}" if field.list else kind
    return name, kind + (", required" if field.required else ""), str(field.at)


def _show_preview(preview: KindPreview) -> None:
    print_line()
    after = "" if preview.is_first else "; an earlier kind takes such a page first"
    print_line(f"{paint(preview.kind, 'bold')}: {count(len(preview.records), 'record')}{after}")
    for number, record in enumerate(preview.records[:MAX_RECORDS_SHOWN], 1):
        if len(preview.records) > 1:
            print_line(paint(f"  record {number}", "dim"))
        size = max(len(one.field) for one in record)
        for one in record:
            print_line(truncate(f"  {one.field.ljust(size)}  {_value(one)}", terminal_width()))
    if len(preview.records) > MAX_RECORDS_SHOWN:
        print_line(f"  and {count(len(preview.records) - MAX_RECORDS_SHOWN, 'more record')}; all of them: --json")
    if preview.links:
        print_line(f"  follows {count(len(preview.links), 'link')}, the first to {clean(preview.links[0])}")


def _value(one: FieldPreview) -> str:
    import msgspec

    value = one.value
    text = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    if one.fatal:
        return paint(f"fails: {clean(one.problem)}", "red")
    if one.problem:
        return f"{clean(text)}  ".lstrip() + paint(f"({clean(one.problem)})", "yellow")
    return clean(text)
