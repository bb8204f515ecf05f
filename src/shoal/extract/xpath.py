"""XPath: a page as lxml reads it, and its elements as Selections hold them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import parsel.csstranslator
import parsel.xpathfuncs
from cssselect import SelectorError

from shoal.errors import GiveUp, UsageError
from shoal.extract.memory_limit import MemoryLimit

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

etree: Any = import_module("lxml.etree")  # it has no types

_NAMESPACES = {"re": "http://exslt.org/regular-expressions", "set": "http://exslt.org/sets"}
_MAX_COMMENTS = 3_000  # beyond that they are left out: texts between them take libxml2 quadratic time
_INVISIBLE_TAGS = frozenset(("script", "style"))

parsel.xpathfuncs.setup()  # has-class()


class LxmlElement:
    """An element of the tree."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node  # as lxml knows it

    @property
    def tag(self) -> str:
        return self.node.tag if isinstance(self.node.tag, str) else ""

    @property
    def attributes(self) -> dict[str, str]:
        return dict(self.node.attrib)

    @property
    def html(self) -> str:
        return str(etree.tostring(self.node, encoding="unicode", method="html", with_tail=False))

    def words(self) -> list[str]:
        """The words that people see."""
        return " ".join(self._pieces()).split()

    def css(self, selector: str) -> list[LxmlElement | str]:
        return self.xpath(_css_to_xpath(selector))

    def xpath(self, expression: str) -> list[LxmlElement | str]:
        try:
            found = _compile(expression)(self.node)
        except (etree.XPathError, ValueError, TypeError) as error:
            raise xpath_error(expression, error) from error
        if not isinstance(found, list):
            found = [found]
        return [_item(one) for one in found]

    def _pieces(self) -> Iterator[str]:
        for event, node in etree.iterwalk(self.node, events=("start", "end", "comment", "pi")):
            if event == "start":
                if node.text and (node.tag not in _INVISIBLE_TAGS or node is self.node):
                    yield node.text
            elif node.tail and node is not self.node:
                yield node.tail


class LxmlTree:
    """The page as lxml reads it; XML loses its namespaces, so that //entry finds those of Atom."""

    __slots__ = ("_positions", "root")

    def __init__(self, text: str, *, xml: bool = False) -> None:
        self.root = LxmlElement(_parsed(text, xml=xml))
        self._positions: dict[str, dict[int, int]] = {}

    def element_for(self, node: LexborNode, html: LexborHTMLParser) -> LxmlElement:
        """The element that lexbor knows as `node`; a copy of it where the two read the page differently."""
        tag = node.tag or ""
        positions = self._positions.get(tag)
        if positions is None:
            positions = self._positions[tag] = {one.mem_id: at for at, one in enumerate(html.tags(tag))}
        same = list(self.root.node.iter(tag.lower())) if tag else []
        at = positions.get(node.mem_id)
        if at is not None and len(same) == len(positions):
            ours = {name: value or "" for name, value in node.attributes.items()}
            if dict(same[at].attrib) == ours:
                return LxmlElement(same[at])
        return _fragment(node.html or "")


def xpath_error(expression: str, error: Exception) -> UsageError:
    """What is wrong with an XPath, where, and what to do."""
    said = str(error) or "it cannot be evaluated"
    log = getattr(error, "error_log", None)
    at = log[-1].column if log is not None and len(log) else 0
    if isinstance(error, etree.XPathSyntaxError) and at:
        where = f" at character {at + 1}, {expression[at : at + 20]!r}" if expression[at:] else " at its end"
        said += where
    hint = "XPath 1.0 is understood, with re: and set: of EXSLT and has-class()."
    if "::text" in expression or "::attr(" in expression or expression.lstrip().startswith((".", "#")):
        hint = "This looks like a CSS selector: use page.css()."
    return UsageError(f"cannot understand the XPath {expression!r}: {said}", hint=hint)


@lru_cache(maxsize=256)
def _compile(expression: str) -> Any:
    try:
        return etree.XPath(expression, namespaces=_NAMESPACES, smart_strings=False)
    except (etree.XPathError, ValueError) as error:
        raise xpath_error(expression, error) from error


@lru_cache(maxsize=256)
def _css_to_xpath(selector: str) -> str:
    try:
        return str(parsel.csstranslator.HTMLTranslator().css_to_xpath(selector))
    except SelectorError as error:
        hint = "Selectors on what xpath() found are those of cssselect, with ::text and ::attr(name)."
        raise UsageError(f"cannot understand the CSS selector {selector!r}: {error}", hint=hint) from error


def _item(found: Any) -> LxmlElement | str:
    if isinstance(found, str):
        return found
    if isinstance(found, bool):
        return "1" if found else "0"
    if isinstance(found, float):
        return str(int(found)) if found.is_integer() else str(found)
    return LxmlElement(found)


def _parsed(text: str, *, xml: bool) -> Any:
    data = text.replace("\0", "").encode("utf-8", "replace")
    try:
        with MemoryLimit(len(data)):
            root = _as_xml(data) if xml else None
            if root is None:
                skip_comments = data.count(b"<!") + data.count(b"<?") > _MAX_COMMENTS
                parser = etree.HTMLParser(
                    encoding="utf-8", huge_tree=True, remove_comments=skip_comments, remove_pis=skip_comments
                )
                root = etree.fromstring(data.strip() or b"<html/>", parser)
    except (MemoryError, etree.XMLSyntaxError) as error:
        raise GiveUp("too_complex", f"it cannot be read for XPath: {error or 'too much memory'}") from error
    return root if root is not None else etree.fromstring(b"<html/>", etree.HTMLParser())


def _as_xml(data: bytes) -> Any:
    """The root without namespaces, or None if it is no XML at all."""
    parser = etree.XMLParser(encoding="utf-8", recover=True, resolve_entities=False, no_network=True, huge_tree=False)
    root = etree.fromstring(data.strip() or b"<empty/>", parser)
    if root is not None:
        for node in root.iter():
            if isinstance(node.tag, str) and node.tag[:1] == "{":
                node.tag = node.tag.rpartition("}")[2]
    return root


def _fragment(html: str) -> LxmlElement:
    root = _parsed(html, xml=False)
    body = root.find("body")
    inner = body if body is not None else root
    return LxmlElement(inner[0] if len(inner) else inner)
