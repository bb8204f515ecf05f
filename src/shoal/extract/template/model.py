"""Template: what to visit and what to take from it, as a value that can be stored and sent."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from shoal.core.task import Ack
from shoal.extract.fetching import PageFetching

SelectorLanguage = Literal["css", "xpath", "re", "json", "data", "meta", "row", "value", "page"]
FieldType = Literal[
    "any", "text", "raw", "integer", "number", "price", "currency", "boolean", "date", "datetime", "url",
    "html", "json", "exists",
]  # fmt: skip


class Selector(msgspec.Struct, frozen=True, omit_defaults=True):
    """Selector: where something is found, as an expression in one of the languages."""

    language: SelectorLanguage
    what: Any  # text; for a constant any JSON value

    def __str__(self) -> str:
        shown = self.what if isinstance(self.what, str) else msgspec.json.encode(self.what).decode()
        return shown if self.language == "css" else f"{self.language}:{shown}"


class FieldSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    at: Selector
    type: FieldType = "text"
    re: str = ""  # what of it counts: the first group, or the whole match
    path: str = ""  # JMESPath into text that is JSON
    list: bool = False
    required: bool = False
    default: Any = None
    whole: bool = False  # looked for in the whole page, not in the element at hand
    fields: dict[str, FieldSpec] = {}  # a record of its own for each thing found


class FollowSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Links to visit: those found, or all of the page; `match` leaves only some of them."""

    at: Selector | None = None
    match: tuple[str, ...] = ()
    each: Selector | None = None
    priority: int | None = None  # None: as routes say, or 0
    max: int = 0
    meta: dict[str, FieldSpec] = {}
    ttl: float | None = None
    ack: Ack | None = None


class PagingSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A chain of pages, at most `max` of them from where it began; 0 is no limit."""

    next: Selector
    max: int = 0


class PageKind(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str
    match: tuple[str, ...] = ("*",)
    each: Selector | None = None
    fields: dict[str, FieldSpec] = {}
    follow: tuple[FollowSpec, ...] = ()
    usual: bool = False  # also follows what a page without a kind would
    paging: PagingSpec | None = None
    by: PageFetching = PageFetching()


class Template(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    pages: tuple[PageKind, ...]
    start: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    settings: dict[str, Any] = {}

    @property
    def version(self) -> str:
        """The same for templates that do the same, whatever their files look like."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:12]
