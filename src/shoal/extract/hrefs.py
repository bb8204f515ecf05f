"""Hrefs: what elements of a page link to, as written there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from selectolax.lexbor import LexborNode

if TYPE_CHECKING:
    from shoal.extract.xpath import LxmlElement

LINKS = "a[href], area[href]"
_URL_PREFIXES = ("http://", "https://", "/", "./", "../", "?")
# What no selector looks like: a path, a query or the name of a web page.
_is_url_text = re.compile(r"[^\s\[\]()\"']*[/?%&=][^\s\[\]()\"']*|[\w.~-]+\.(html?|php|aspx?|jsp)").fullmatch


def looks_like_url(text: str) -> bool:
    """Whether a text is rather a URL than a selector."""
    return text.startswith(_URL_PREFIXES) or _is_url_text(text) is not None


def hrefs_of_any(nodes: list[LexborNode | LxmlElement]) -> list[str]:
    hrefs: list[str] = []
    for node in nodes:
        if isinstance(node, LexborNode):
            hrefs += hrefs_of([node])
        else:
            own = node.attributes.get("href")
            inner = [own] if own is not None else node.xpath(".//a/@href | .//area/@href")
            hrefs += [href for href in inner if isinstance(href, str) and href]
    return hrefs


def hrefs_of(nodes: list[LexborNode]) -> list[str]:
    """The href of each element, or of the links in it where it has none itself."""
    hrefs = [node.attrs.sget("href") for node in nodes]
    if all(hrefs):
        return hrefs
    for at in range(len(hrefs) - 1, -1, -1):
        if not hrefs[at]:
            inner = nodes[at].css(LINKS) if "href" not in nodes[at].attrs else []
            hrefs[at : at + 1] = [href for node in inner if (href := node.attrs.sget("href"))]
    return hrefs
