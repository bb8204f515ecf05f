"""Converters: one thing found on a page as a value of a declared type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from selectolax.lexbor import LexborNode

from shoal.extract import values
from shoal.extract.template import text
from shoal.extract.template.page_view import PageView, date_text, element_text
from shoal.extract.template.selectors import markup

# None for what is blank; raises ValueError for what is not of the type.
Converter = Callable[[PageView, Any], Any]

_URL_ATTRIBUTES = ("href", "src", "content", "action", "data", "cite")

# what each type is called when a value is not of it
TYPE_NAMES = {
    "any": "a value", "text": "text", "raw": "text", "integer": "a whole number", "number": "a number",
    "price": "a price", "currency": "an amount with a currency", "boolean": "true or false", "date": "a date",
    "datetime": "a date and time", "url": "a URL", "html": "HTML", "json": "JSON",
    "exists": "true or false",
}  # fmt: skip


def as_text(item: Any) -> str:
    """The words of whatever was found, spaces collapsed in elements only."""
    if isinstance(item, str):
        return item
    if isinstance(item, LexborNode):
        return element_text(item)
    if hasattr(item, "itertext"):
        return _tree_element_text(item)
    if isinstance(item, bool):
        return "true" if item else "false"
    return str(item) if isinstance(item, int | float) else msgspec.json.encode(item).decode()


def _tree_element_text(item: Any) -> str:
    if item.tag in ("meta", "input"):
        return item.get("content" if item.tag == "meta" else "value") or ""
    return text.visible_text_of_tree(item)


def _attribute(item: Any, name: str) -> str:
    if isinstance(item, LexborNode):
        return str(item.attrs.sget(name)) if name in item.attrs else ""
    return (item.get(name) or "") if hasattr(item, "itertext") else ""


def _text(view: PageView, item: Any) -> str | None:
    return " ".join((item if isinstance(item, str) else as_text(item)).split()) or None


def _raw(view: PageView, item: Any) -> str | None:
    if isinstance(item, LexborNode):
        item = item.text(deep=True)
    elif hasattr(item, "itertext"):
        item = "".join(item.itertext())
    text = as_text(item)
    return text if text.strip() else None


def _integer(view: PageView, item: Any) -> int | None:
    if isinstance(item, int) and not isinstance(item, bool):
        return item
    text = as_text(item)
    return values.integer(text) if text.strip() else None


def _number(view: PageView, item: Any) -> float | None:
    if isinstance(item, int | float) and not isinstance(item, bool):
        return item
    text = as_text(item)
    return values.number(text) if text.strip() else None


def _price(view: PageView, item: Any) -> float | None:
    if isinstance(item, int | float) and not isinstance(item, bool):
        return item
    text = as_text(item)
    return values.price(text).amount if text.strip() else None


def _currency(view: PageView, item: Any) -> str | None:
    text = as_text(item)
    return values.price(text).currency or None if text.strip() else None


def _boolean(view: PageView, item: Any) -> bool | None:
    if isinstance(item, bool):
        return item
    text = as_text(item)
    return values.boolean(text) if text.strip() else None


def _date(view: PageView, item: Any) -> str | None:
    text = _date_text(item)
    return values.date(text) if text.strip() else None


def _datetime(view: PageView, item: Any) -> str | None:
    text = _date_text(item)
    return values.datetime(text) if text.strip() else None


def _date_text(item: Any) -> str:
    if isinstance(item, LexborNode):
        return date_text(item)
    return _attribute(item, "datetime") or as_text(item)


def _url(view: PageView, item: Any) -> str | None:
    href = item if isinstance(item, str) else ""
    if not href:
        href = next((value for name in _URL_ATTRIBUTES if (value := _attribute(item, name))), "") or as_text(item)
    if not href.strip():
        return None
    url = view.absolute(href)
    if url is None:
        raise ValueError("not a URL")
    return url


def _html(view: PageView, item: Any) -> str | None:
    return markup(item) or None


def _json(view: PageView, item: Any) -> Any:
    if not isinstance(item, str | LexborNode) and not hasattr(item, "itertext"):
        return item
    text = item if isinstance(item, str) else _raw(view, item) or ""
    if not text.strip():
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _any(view: PageView, item: Any) -> Any:
    if isinstance(item, LexborNode) or hasattr(item, "itertext"):
        return _text(view, item)
    return None if item == "" else item


CONVERTERS: dict[str, Converter] = {
    "any": _any, "text": _text, "raw": _raw, "integer": _integer, "number": _number, "price": _price,
    "currency": _currency, "boolean": _boolean, "date": _date, "datetime": _datetime, "url": _url,
    "html": _html, "json": _json, "exists": lambda view, item: True,
}  # fmt: skip


def shorten(item: Any) -> str:
    """A found thing for a message."""
    text = " ".join(as_text(item).split())
    return repr(text if len(text) <= 60 else text[:60] + "…")
