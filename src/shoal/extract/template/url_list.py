"""URL lists: templates for lists of URLs, one record per page and no links followed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast, get_args

from shoal.extract.template import selectors
from shoal.extract.template.model import FieldSpec, FieldType, PageKind, Selector, Template
from shoal.extract.template.node_reader import SYNONYMS
from shoal.extract.template.problem import TemplateError, TemplateProblem, suggest
from shoal.extract.template.shorthand import parse_selector

_TYPES: tuple[str, ...] = get_args(FieldType)
_key = re.compile(
    r"(?P<name>[^\s:=\[\]][^:=\[\]]*+)(?P<list>\[\])?(?::(?P<type>[A-Za-z]+)(?P<too>\[\])?)?"
).fullmatch  # linear: names come from strangers
_URL_FIELD = {"url": FieldSpec(Selector("page", "input"), type="any")}
_SUMMARY = ("final_url", "status", "title", "description", "lang", "published", "text", "fetched_at")


def from_fields(name: str, fields: Mapping[str, str]) -> Template:
    """A template of fields in short form: "title": "h1::text", "price:number": ".price", "tags[]": ".tag".

    Raises TemplateError with everything that is wrong with them.
    """
    problems: list[TemplateProblem] = []
    read = dict(_URL_FIELD)
    for key, text in fields.items():
        field, known = _field(key, text, problems), _key(key.strip())
        if field is not None and known is not None:
            read[known["name"].rstrip()] = field
    if problems:
        raise TemplateError("-f", problems)
    return _single_kind_template(name, read)


def summary(name: str = "pages") -> Template:
    """What there is to say about any page: its URL, title, description, language, date and text."""
    return _single_kind_template(
        name, _URL_FIELD | {one: FieldSpec(Selector("page", one), type="any") for one in _SUMMARY}
    )


def _single_kind_template(name: str, fields: dict[str, FieldSpec]) -> Template:
    return Template(name=name, pages=(PageKind("page", fields=fields),))


def _field(key: str, text: str, problems: list[TemplateProblem]) -> FieldSpec | None:
    parts = _key(key.strip())
    if parts is None:
        hint = "-f 'price=.price', -f 'price:number=.price', -f 'tags[]=.tag' or -f 'sizes[]:integer=.size'"
        problems.append(TemplateProblem(0, 0, key, "it cannot be the name of a field", hint))
        return None
    name, kind = parts["name"].rstrip(), parts["type"]
    if kind is not None and kind not in _TYPES:
        hint = suggest(SYNONYMS.get(kind, kind), _TYPES)
        problems.append(TemplateProblem(0, 0, name, f"{kind!r} is not a type", hint))
        return None
    at = parse_selector(text)
    if not text.strip() or not at.what:
        problems.append(TemplateProblem(0, 0, name, "it does not say where the value is", f"{key}=h1::text"))
        return None
    if found := selectors.selector_problem(at, None):
        problems.append(TemplateProblem(0, 0, name, *found))
    own = "any" if at.language in ("json", "data", "meta", "row", "value", "page") else "text"
    return FieldSpec(at, type=cast(FieldType, kind or own), list=bool(parts["list"] or parts["too"]))
