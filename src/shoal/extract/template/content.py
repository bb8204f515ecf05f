"""Content: templates whose records carry a page's text or its HTML along, for callers who want the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

from shoal.errors import UsageError
from shoal.extract.template.model import FieldSpec, Selector, Template
from shoal.extract.template.url_list import from_fields, summary

Content = Literal["text", "html", "none"]
FIELD = "content"


def page_template(name: str, fields: Mapping[str, str], content: Content) -> tuple[Template, str]:
    """One record per page, of these fields or of what there is to say about any page.

    Answers the name of the field that has the content, too; empty where there is none.
    """
    if fields:
        return with_content(from_fields(name, fields), content)
    whole = summary(name)
    if content == "text":
        return whole, "text"
    kind = whole.pages[0]
    fewer = {one: field for one, field in kind.fields.items() if one != "text"}
    return with_content(replace(whole, pages=(replace(kind, fields=fewer),)), content)


def with_content(template: Template, content: Content) -> tuple[Template, str]:
    """The same template, with the content of each page in its record."""
    if content == "none":
        return template, ""
    if any(kind.each for kind in template.pages):
        raise UsageError(
            f"template {template.name} makes several records per page, and none of them is the page",
            hint='content: "none"; its records are in the result',
        )
    if any(FIELD in kind.fields for kind in template.pages):
        return template, FIELD  # it says itself what the content is
    field = {FIELD: FieldSpec(Selector("page", content), type="any")}
    pages = tuple(replace(kind, fields=kind.fields | field) for kind in template.pages)
    return replace(template, pages=pages), FIELD
