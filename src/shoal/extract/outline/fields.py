"""Fields: what the pages of one kind have in common and say differently, with a selector that is likely to last."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from selectolax.lexbor import LexborNode

from shoal.extract import values
from shoal.extract.page import Page
from shoal.extract.selection import visible_words
from shoal.extract.template.model import FieldSpec, FieldType, Selector

TITLE_SELECTORS = ("h1", "[itemprop=name]", "title")
PERMALINK = "¶"  # what Sphinx and MkDocs put behind a heading, for links to it
WITHOUT_PERMALINK = f"[^{PERMALINK}]*[^{PERMALINK}\\s]"
MAX_FIELDS = 6  # found by their class alone
MAX_LETTERS = 120  # of a value: what is longer is a text, not a field
MAX_CLASSES, MAX_ANCESTORS = 120, 6
MAX_DEPTH = 200  # elements above one that are looked at
MAX_INNER = 3  # elements inside one that is a value; with more it holds several
MOST = 2 / 3  # of the pages must have a field
_PUBLISHED = "meta[property='article:published_time']"
_SURROUNDINGS = frozenset(("nav", "footer", "aside", "form", "dialog", "noscript", "template", "script", "style"))
_CONTENT = frozenset(("main", "article"))
# Words a person would choose; css-1x2y3z and the like change with the next build of the site.
_is_stable_class = re.compile(r"[a-z][a-z]+(?:[-_]{1,2}[a-z]+){0,3}", re.IGNORECASE).fullmatch
_LAYOUT = re.compile(
    r"(?:col|row|grid|flex|container|wrapper|inner|outer|content|main|left|right|clear\w*|active|btn|button|icon|sr-only"
    r"|text-\w+|bg-\w+|breadcrumbs?|pager|pagination|nav\w*|menu|share|social|next|prev\w*|earlier|later|related)",
    re.IGNORECASE,
)
_has_money = re.compile(
    r"[$€£¥₹₽]\s?\d|\d\s?[$€£¥₹₽]|\b(?:USD|EUR|GBP|CHF|JPY)\s?\d|\d\s?(?:USD|EUR|GBP|CHF|JPY|zł|kr)\b"
).search

Fields = dict[str, FieldSpec]


def is_in_content(node: LexborNode) -> bool:
    """Whether an element belongs to the page itself, not to what stands around it on every page."""
    for at in chain((node,), _ancestors(node)):
        if at.tag in _SURROUNDINGS:
            return False
        if at.tag in _CONTENT:
            return True
        if at.tag == "header":
            return any(above.tag in _CONTENT for above in _ancestors(at))
    return True


def title_field(pages: Sequence[Page]) -> FieldSpec:
    """What names a page: the first of the usual places that all of them have, and few have alike."""
    for selector in TITLE_SELECTORS:
        texts = [_text(page, selector) for page in pages]
        if all(texts) and len(set(texts)) >= min(len(texts), 1 + len(texts) // 2):
            marked = any(text.endswith(PERMALINK) for text in texts)
            return FieldSpec(Selector("css", selector), re=WITHOUT_PERMALINK if marked else "")
    return FieldSpec(Selector("css", "title"))


def common_fields(pages: Sequence[Page]) -> Fields:
    """The fields of pages of one kind, beside their title and URL."""
    found: Fields = dict(_known_fields(pages))
    if len(pages) < 2:
        return found  # nobody knows what differs from page to page
    title = [_text(page, str(title_field(pages).at)) for page in pages]
    seen = {tuple(title)}
    candidates = list(_class_fields(pages))
    containers = {above.mem_id for one in candidates for above in _ancestors(one.node)}
    for name, selector, texts, node in candidates:
        if node.mem_id in containers:
            continue
        if tuple(texts) in seen or name in (*found, "title", "url") or len(found) >= MAX_FIELDS:
            continue
        seen.add(tuple(texts))
        found[name] = FieldSpec(Selector("css", selector), type=_type_of(texts))
    return found


def has_evidence(pages: Sequence[Page], fields: Fields) -> bool:
    """Whether pages look like entries of a collection: they have a price or a date, or say what they are."""
    if any(field.type in ("price", "date", "datetime") for field in fields.values()):
        return True
    return all(page.css("meta[property='og:type'][content=product], [itemtype*='schema.org/']").nodes for page in pages)


def _known_fields(pages: Sequence[Page]) -> Iterator[tuple[str, FieldSpec]]:
    """What has a place by convention."""
    known: tuple[tuple[str, str, FieldType], ...] = (
        ("price", "[itemprop=price]", "price"),
        ("date", _PUBLISHED, "datetime"),
        ("date", "time[datetime]", "datetime"),
        ("author", "[rel=author]", "text"),
    )
    taken: set[str] = set()
    for name, selector, kind in known:
        filled = [page for page in pages if any(map(is_in_content, _nodes(page, selector)))]
        if name not in taken and len(filled) >= MOST * len(pages):
            taken.add(name)
            yield name, FieldSpec(Selector("css", selector), type=kind)


class _Candidate(NamedTuple):
    name: str
    selector: str
    texts: list[str]  # on each page
    node: LexborNode  # on the first


def _class_fields(pages: Sequence[Page]) -> Iterator[_Candidate]:
    """What is found once on every page and differs between them."""
    shared = list(_classes(pages[0]))
    for page in pages[1:]:
        here = set(_classes(page))
        shared = [name for name in shared if name in here]
    for name in shared[:MAX_CLASSES]:
        selector = _unique_selector(pages, name)
        if selector is None:
            continue
        nodes = [_nodes(page, selector)[0] for page in pages]
        if any(len(node.css("*")) > 1 + MAX_INNER for node in nodes):  # itself is among them
            continue
        texts = [" ".join(visible_words(node)) for node in nodes]
        filled = [text for text in texts if text]
        if len(filled) < MOST * len(pages) or len(set(texts)) < 2 or any(len(text) > MAX_LETTERS for text in texts):
            continue
        if all(map(is_in_content, nodes)):
            yield _Candidate(re.sub(r"\W+|_+", "_", name.lower()), selector, texts, nodes[0])


def _unique_selector(pages: Sequence[Page], name: str) -> str | None:
    """A selector by class that finds one element on each page; within another class where it must."""
    own = f".{name}"
    if all(len(_nodes(page, own)) == 1 for page in pages):
        return own
    above = [{word for at in _ancestors(_nodes(page, own)[0]) for word in _class_words(at)} for page in pages]
    nearest = [word for at in _ancestors(_nodes(pages[0], own)[0]) for word in _class_words(at)]
    for word in nearest[:MAX_ANCESTORS]:
        selector = f".{word} {own}"
        if all(word in words for words in above) and all(len(_nodes(page, selector)) == 1 for page in pages):
            return selector
    return None


def _classes(page: Page) -> Iterator[str]:
    yielded: set[str] = set()
    for node in page.html.css("body [class]"):
        for word in _class_words(node):
            if word not in yielded and not _LAYOUT.fullmatch(word):
                yielded.add(word)
                yield word


def _class_words(node: LexborNode) -> list[str]:
    return [word for word in node.attrs.sget("class").split() if _is_stable_class(word)]


def _ancestors(node: LexborNode) -> Iterator[LexborNode]:
    at = node.parent
    for _ in range(MAX_DEPTH):
        if at is None or not at.is_element_node:
            return
        yield at
        at = at.parent


def _type_of(texts: Sequence[str]) -> FieldType:
    filled = [text for text in texts if text]
    if all(map(_has_money, filled)) and _all_read(filled, values.price):
        return "price"
    if all(len(text) <= 40 for text in filled) and _all_read(filled, values.date):
        return "date"
    return "text"


def _all_read(texts: Sequence[str], read: Callable[[str], object]) -> bool:
    try:
        return bool([read(text) for text in texts])
    except ValueError:
        return False


def _nodes(page: Page, selector: str) -> list[LexborNode]:
    return page.html.css(selector)


def _text(page: Page, selector: str) -> str:
    return page.css(selector).first.text
