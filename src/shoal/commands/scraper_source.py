"""Scraper source: a template that was worked out from a site as a file that people read and change.

What comes from the site (URLs, selectors) is written as quoted text only: nobody's page writes code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from shoal.extract.outline.fields import PERMALINK
from shoal.extract.template.model import FieldSpec, PageKind, Template

TITLE = "title"  # the selector that every page has
_KIND_NAMES = {"page": "any_page"}  # a handler's argument is called page
_READERS = {"price": ".price()", "date": ".date()", "datetime": ".datetime()", "url": ".url()"}


def python_source(template: Template, *, variable: str, heading: str) -> str:
    """A Python file with one handler for each kind of page."""
    docstring = heading.replace("\\", "/").replace('"', "'")  # so that it ends where it should
    lines = [
        f'"""{docstring}"""',
        "",
        "import shoal",
        "",
        f"{variable} = shoal.Scraper(",
        f"    {_quoted(template.name)},",
        f"    start={_quoted(template.start[0])},  # one URL or a list; only hosts named here are visited",
        "    # delay=1,  # any setting of `shoal run --help`; flags win over what stands here",
        ")",
        "",
        "",
        "# The first pattern that matches a page's path decides which handler gets it; * matches anything.",
        "# Pages without a handler are searched for links to pages that have one.",
    ]
    for at, kind in enumerate(template.pages):
        lines += ["", ""] if at else []
        lines += _handler(kind, variable)
    return "\n".join(lines) + "\n"


def yaml_source(template: Template, *, heading: str) -> str:
    """The same as a template."""
    lines = [f"# {text}".rstrip() for text in heading.splitlines()]
    lines += [f"name: {_quoted(template.name)}", f"start: {_quoted(template.start[0])}", "pages:"]
    for kind in template.pages:
        lines += [f"  - kind: {kind.kind}", f"    match: [{', '.join(map(_quoted, kind.match))}]"]
        if kind.fields:
            lines.append("    fields:")
            lines += [f"      {name}: {_yaml_field(name, field)}" for name, field in kind.fields.items()]
        if kind.paging:
            lines.append(f"    paging: {_quoted(str(kind.paging.next))}")
        if kind.usual:
            lines.append("    follow: true  # links to pages of these kinds")
    return "\n".join(lines) + "\n"


def _handler(kind: PageKind, variable: str) -> Iterator[str]:
    for pattern in reversed(kind.match):
        yield f"@{variable}.page({_quoted(pattern)})"
    yield f"def {_KIND_NAMES.get(kind.kind, kind.kind)}(page):"
    if kind.fields:
        yield "    # Whatever is yielded as a dict is a record: a row of the output."
        yield "    yield {"
        for name, field in kind.fields.items():
            yield f"        {_quoted(name)}: {_expression(name, field)},"
        yield "    }"
    if kind.paging:
        yield f"    yield from page.follow({_quoted(str(kind.paging.next))})  # the next page of the list"
    if kind.usual:
        yield "    # Links are followed once, however many pages have them."
        yield f"    yield from {variable}.default_follow(page)  # links to pages that have a handler"


def _expression(name: str, field: FieldSpec) -> str:
    if field.at.language == "page":
        return "page.url"
    found = f"page.css({_quoted(field.at.what)})"
    if name == TITLE and field.at.what != TITLE:
        trimmed = f'.rstrip("{PERMALINK} ")' if field.re else ""
        return f'{found}.first.text{trimmed} or page.css("{TITLE}").first.text'
    return f"{found}{_READERS.get(field.type, '.first.text')}"


def _yaml_field(name: str, field: FieldSpec) -> str:
    if field.at.language == "page":
        return f"page:{field.at.what}"
    if name == TITLE and field.at.what == TITLE:
        return "page:title"
    kind = "" if field.type == "text" else f", type: {field.type}"
    part = f", re: {_quoted(field.re)}" if field.re else ""
    return f"{{css: {_quoted(field.at.what)}{kind}{part}}}"


def _quoted(text: str) -> str:
    """Text in double quotes, as Python and YAML read it alike."""
    return json.dumps(text)
