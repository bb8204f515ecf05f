"""Templates that carry a page's content along."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.core.page import Response
from shoal.errors import UsageError
from shoal.extract.page import Page
from shoal.extract.template import TemplateScraper, from_fields, parse
from shoal.extract.template.content import Content, page_template, with_content

HTML = "<title>Lamp</title><main><h1>A Lamp</h1></main>"


def record_of(template: Any, body: bytes = HTML.encode(), kind: str = "text/html") -> dict[str, Any]:
    page = Page(Response("https://shop.example/", 200, (("content-type", kind),), body))
    handler = TemplateScraper(template).handler_for(page.url)
    assert handler is not None
    (record,) = handler.func(page)
    assert isinstance(record, dict)
    return record


@pytest.mark.parametrize(
    ("fields", "content", "field", "expected"),
    [
        ({}, "text", "text", "A Lamp"),
        ({}, "html", "content", HTML),
        ({}, "none", "", None),
        ({"name": "h1"}, "text", "content", "A Lamp"),
        ({"name": "h1"}, "html", "content", HTML),
        ({"name": "h1"}, "none", "", None),
    ],
)
def test_the_field_with_the_content_is_named(
    fields: dict[str, str], content: Content, field: str, expected: str | None
) -> None:
    template, named = page_template("batch", fields, content)
    record = record_of(template)
    assert named == field
    assert record.get(named) == expected
    assert ("text" in record) == (named == "text")
    assert record.get("name", "A Lamp") == "A Lamp"


def test_html_is_cut_at_1_mb_and_there_is_none_of_an_image() -> None:
    template, _ = page_template("batch", {}, "html")
    assert len(record_of(template, ("ö" * 900_000).encode())["content"].encode()) == 1_000_000
    assert record_of(template, b"\x89PNG\r\n\x1a\n\0\0", "image/png")["content"] is None


def test_a_template_whose_records_are_parts_of_a_page_has_no_content() -> None:
    parts = parse("name: links\neach: a\nfields: {to: '.'}\n")
    with pytest.raises(UsageError, match="several records"):
        with_content(parts, "html")
    assert with_content(parts, "none") == (parts, "")


def test_a_template_that_names_its_content_itself_stays_as_it_is() -> None:
    own = from_fields("own", {"content": "h1"})
    assert with_content(own, "html") == (own, "content")
