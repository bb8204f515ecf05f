"""Finders: a selector as a function of the page and the element at hand, and what may be wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from shoal.errors import UsageError
from shoal.extract.selection import select, select_first
from shoal.extract.template.model import Selector, SelectorLanguage
from shoal.extract.template.page_view import PAGE_VALUES, PageView
from shoal.extract.template.problem import suggest
from shoal.extract.xpath_syntax import unknown_part

Finder = Callable[[PageView, Any], list[Any]]
FirstFinder = Callable[[PageView, Any], Any]  # None where only the whole search can tell
SELF = "."
_NAMESPACES = {"set": "http://exslt.org/sets"}


def finder(at: Selector, context: SelectorLanguage | None, *, spread: bool = True) -> Finder:
    """What finds everything at a place; `context` is the language of the element at hand, None for a page.

    spread: whether a list in JSON counts as many things or as one.
    """
    return _MAKERS[at.language](at.what, context, spread)


def first_finder(at: Selector, context: SelectorLanguage | None) -> FirstFinder | None:
    """What finds only the first thing, where that is quicker."""
    what = at.what
    if at.language != "css" or what == SELF:
        return None
    if context is None:
        return lambda view, here: select_first(view.html, what)
    return lambda view, here: select_first(here, what)


def selector_problem(at: Selector, context: SelectorLanguage | None) -> tuple[str, str] | None:
    """What is wrong with a place, and a hint; None if nothing is."""
    if at.language in ("css", "xpath") and context not in (None, at.language):
        hint = "write both in the same language, or from: page to look in the whole page"
        return f"{at.language} cannot look inside what {context} found", hint
    if at.language == "json" and context in ("css", "xpath"):
        return ("json: cannot look inside an element", "css: and json: together: JSON in the text of an element")
    if at.language != "value" and not at.what:
        return "it is empty", "quote it: after a space, # begins a comment in YAML"
    return _CHECKS[at.language](at.what)


def compile_regex(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def regex_matches(pattern: re.Pattern[str], text: str) -> list[str]:
    """The first group of every match, or the whole match where there is no group."""
    group = 1 if pattern.groups else 0
    return [found for match in pattern.finditer(text) if (found := match[group]) is not None]


def compile_jmespath(path: str) -> Callable[[Any], Any]:
    """A JMESPath as a function."""
    import jmespath  # late: few templates have one

    expression = jmespath.compile(path)

    def search(value: Any) -> Any:
        try:
            return expression.search(value)
        except jmespath.exceptions.JMESPathError:  # a function that was given null, or a list for a text
            return None

    return search


_SIMPLIFY_HINT = "write it simpler"


def regex_problem(pattern: str) -> tuple[str, str] | None:
    try:
        re.compile(pattern)
    except re.error as error:
        at = "" if error.pos is None else f" at character {error.pos + 1}"
        return (f"cannot understand the regular expression {pattern!r}: {error.msg}{at}", "see Python's re module")
    except (RecursionError, OverflowError):
        return "this regular expression is nested too deeply, or has too large a number", _SIMPLIFY_HINT
    return None


def jmespath_problem(path: str) -> tuple[str, str] | None:
    import jmespath

    try:
        compile_jmespath(path)
    except jmespath.exceptions.JMESPathError as error:
        said = str(error).split(":\n")[0].splitlines()[0].rstrip(":")
        hint = "JMESPath: items[0].name, items[].name; names with other characters go in double quotes"
        return f"cannot understand the JMESPath {path!r}: {said}", hint
    except RecursionError:
        return "this JMESPath is nested too deeply", _SIMPLIFY_HINT
    return None


def _spread(value: Any, spread: bool) -> list[Any]:
    if value is None:
        return []
    return [one for one in value if one is not None] if spread and isinstance(value, list) else [value]


def _css(what: str, context: SelectorLanguage | None, spread: bool) -> Finder:
    if what == SELF:
        return lambda view, here: [view.html.root if context is None else here]
    if context is None:
        return lambda view, here: select(view.html, what)
    return lambda view, here: select(here, what)


def _xpath(what: str, context: SelectorLanguage | None, spread: bool) -> Finder:
    search = _xpath_function(what)

    def find(view: PageView, here: Any) -> list[Any]:
        found = search(view.tree if context is None else here)
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        return found if isinstance(found, list) else [found]

    return find


def _xpath_function(what: str) -> Callable[[Any], Any]:
    import parsel  # noqa: F401 - has-class() comes with it

    compile_xpath = import_module("lxml.etree").XPath
    # Without regular expressions: templates come from strangers, and lxml's can take for ever.
    search: Callable[[Any], Any] = compile_xpath(what, namespaces=_NAMESPACES, regexp=False, smart_strings=False)
    return search


def _re(what: str, context: SelectorLanguage | None, spread: bool) -> Finder:
    pattern = compile_regex(what)
    if context is None:
        return lambda view, here: list(regex_matches(pattern, view.page.text))
    return lambda view, here: list(regex_matches(pattern, markup(here)))


def _json(what: str, context: SelectorLanguage | None, spread: bool) -> Finder:
    search = compile_jmespath(what)
    if context is None:
        return lambda view, here: _spread(search(view.json), spread)
    return lambda view, here: _spread(search(here), spread)


def _data(what: str, context: SelectorLanguage | None, spread: bool) -> Finder:
    search = compile_jmespath(what)
    return lambda view, here: _spread(search(view.data), spread)


def _meta(what: str, context: SelectorLanguage | None, spread: bool) -> Finder:
    return lambda view, here: _spread(view.page.meta.get(what), spread)


def _row(what: str, context: SelectorLanguage | None, spread: bool) -> Finder:
    folded = what.casefold()

    def find(view: PageView, here: Any) -> list[Any]:
        row = view.page.meta.get("row")
        if not isinstance(row, dict):
            return []
        if what in row:
            return _spread(row[what], spread)
        return next((_spread(value, spread) for name, value in row.items() if name.casefold() == folded), [])

    return find


def _value(what: Any, context: SelectorLanguage | None, spread: bool) -> Finder:
    return lambda view, here: _spread(what, spread)


def _page(what: str, context: SelectorLanguage | None, spread: bool) -> Finder:
    read = PAGE_VALUES[what]
    return lambda view, here: _spread(read(view), spread)


_MAKERS: dict[str, Callable[[Any, SelectorLanguage | None, bool], Finder]] = {
    "css": _css, "xpath": _xpath, "re": _re, "json": _json, "data": _data, "meta": _meta, "row": _row,
    "value": _value, "page": _page,
}  # fmt: skip


def markup(item: Any) -> str:
    """An element as HTML; what is none, as it is."""
    if isinstance(item, str):
        return item
    if hasattr(item, "html"):
        return item.html or ""
    if hasattr(item, "itertext"):
        return str(import_module("lxml.html").tostring(item, encoding="unicode", with_tail=False))
    import msgspec

    return msgspec.json.encode(item).decode()


def _css_problem(what: str) -> tuple[str, str] | None:
    if what == SELF:
        return None
    try:
        select(LexborHTMLParser(""), what)
    except UsageError as error:
        return str(error), error.hint.replace("use page.xpath()", "write xpath:…")
    return None


def _xpath_problem(what: str) -> tuple[str, str] | None:
    etree = import_module("lxml.etree")
    try:
        _xpath_function(what)
        problem = unknown_part(what)
    except (etree.XPathError, ValueError) as error:
        problem = str(error)
    return (f"cannot understand the XPath {what!r}: {problem}", "XPath 1.0, like //h1/text()") if problem else None


def _page_problem(what: str) -> tuple[str, str] | None:
    if what in PAGE_VALUES:
        return None
    return f"a page has no {what!r}", suggest(what, PAGE_VALUES)


_CHECKS: dict[str, Callable[[Any], tuple[str, str] | None]] = {
    "css": _css_problem,
    "xpath": _xpath_problem,
    "re": regex_problem,
    "json": jmespath_problem,
    "data": jmespath_problem,
    "meta": lambda what: None,
    "row": lambda what: None,
    "value": lambda what: None,
    "page": _page_problem,
}
