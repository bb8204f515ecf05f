"""Listing: templates for lists of addresses, one record per page and no links followed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast, get_args

from shoal.extract.template import find
from shoal.extract.template.model import Field, PageKind, Template, Type, Where
from shoal.extract.template.problem import Problem, TemplateError, nearest
from shoal.extract.template.reader import SYNONYMS
from shoal.extract.template.short import place

_TYPES: tuple[str, ...] = get_args(Type)
_key = re.compile(
    r"(?P<name>[^\s:=\[\]][^:=\[\]]*?)\s*(?P<list>\[\])?(?::(?P<type>[A-Za-z]+)(?P<too>\[\])?)?"
).fullmatch
_ADDRESS = {"url": Field(Where("page", "input"), type="any")}
_SUMMARY = ("final_url", "status", "title", "description", "lang", "published", "text", "fetched_at")


def from_fields(name: str, fields: Mapping[str, str]) -> Template:
    """A template of fields in short form: "title": "h1::text", "price:number": ".price", "tags[]": ".tag".

    Raises TemplateError with everything that is wrong with them.
    """
    problems: list[Problem] = []
    read = dict(_ADDRESS)
    for key, text in fields.items():
        field, known = _field(key, text, problems), _key(key)
        if field is not None and known is not None:
            read[known["name"]] = field
    if problems:
        raise TemplateError("-f", problems)
    return _listing(name, read)


def summary(name: str = "pages") -> Template:
    """What there is to say about any page: its address, title, description, language, date and text."""
    return _listing(name, _ADDRESS | {one: Field(Where("page", one), type="any") for one in _SUMMARY})


def _listing(name: str, fields: dict[str, Field]) -> Template:
    return Template(name=name, pages=(PageKind("page", fields=fields),))


def _field(key: str, text: str, problems: list[Problem]) -> Field | None:
    parts = _key(key.strip())
    if parts is None:
        hint = "-f 'price=.price', -f 'price:number=.price', -f 'tags[]=.tag' or -f 'sizes[]:integer=.size'"
        problems.append(Problem(0, 0, key, "it cannot be the name of a field", hint))
        return None
    kind = parts["type"]
    if kind is not None and kind not in _TYPES:
        hint = nearest(SYNONYMS.get(kind, kind), _TYPES)
        problems.append(Problem(0, 0, parts["name"], f"{kind!r} is not a type", hint))
        return None
    at = place(text)
    if not text.strip() or not at.what:
        problems.append(Problem(0, 0, parts["name"], "it does not say where the value is", f"{key}=h1::text"))
        return None
    if found := find.trouble(at, None):
        problems.append(Problem(0, 0, parts["name"], *found))
    own = "any" if at.language in ("json", "data", "meta", "value", "page") else "text"
    return Field(at, type=cast(Type, kind or own), list=bool(parts["list"] or parts["too"]))
