"""URL groups: URLs that lead to pages of one kind, as far as URLs can tell, and a pattern for each group."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import takewhile

from shoal.core.url import path_of
from shoal.core.url_shape import PLACEHOLDER, shape_of
from shoal.extract.scope import url_matcher

# What a page is called by; anything else (.pdf, .zip, .css) is a file of another kind.
PAGE_SUFFIXES = frozenset(("", "/", ".html", ".htm", ".xhtml", ".php", ".asp", ".aspx", ".jsp", ".cgi"))
MANY_ALIKE = 3  # URLs that share a folder, or differ in their numbers alone, are a group of their own
_SEPARATORS = "-_.~"
_stars = re.compile(r"\*{2,}").sub
_suffix = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,5}$").search


class UrlPath:
    """A canonical URL in the parts that groups are made by."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.path, _, query = path_of(url).partition("?")
        self.names = tuple(sorted({part.partition("=")[0] for part in query.split("&") if part}))
        self.segments = [part for part in self.path.split("/") if part]

    @cached_property
    def suffix(self) -> str:
        """What the path ends with: the suffix of a file, / for a folder, or nothing."""
        if self.path.endswith("/"):
            return "/"
        found = _suffix(self.segments[-1])
        return found[0].lower() if found else ""

    @cached_property
    def shapes(self) -> list[str]:
        """Its segments with marks for numbers and ids."""
        return [part for part in shape_of(f"http://host{self.path}").removeprefix("host").split("/") if part]


class UrlGroup:
    """URLs of one kind, and the pattern that matches them."""

    def __init__(self, paths: Sequence[UrlPath]) -> None:
        self.urls = tuple(path.url for path in paths)
        self._paths = paths

    # Late: a page may link to thousands that have nothing in common.
    @cached_property
    def pattern(self) -> str:
        return _pattern(self._paths)

    @cached_property
    def matches(self) -> Callable[[str], bool]:
        return url_matcher(self.pattern)

    def __repr__(self) -> str:
        return f"<UrlGroup {self.pattern}: {len(self.urls)}>"


def is_page_url(url: str) -> bool:
    """Whether a canonical URL looks like that of a page."""
    return UrlPath(url).suffix in PAGE_SUFFIXES


def group_urls(urls: Iterable[str]) -> list[UrlGroup]:
    """The groups of canonical URLs of one host, the largest first."""
    frames: defaultdict[tuple[object, ...], list[UrlPath]] = defaultdict(list)
    for path in map(UrlPath, dict.fromkeys(urls)):
        frames[len(path.segments), path.suffix, path.names].append(path)
    groups = [UrlGroup(part) for paths in frames.values() for part in _split(paths, 0)]
    return sorted(groups, key=lambda group: -len(group.urls))


def _split(paths: list[UrlPath], at: int) -> list[list[UrlPath]]:
    """By segment after segment, wherever several share one; what nobody shares stays together."""
    if at >= len(paths[0].segments) or len(paths) == 1:
        return [paths]
    is_last = at == len(paths[0].segments) - 1
    counts = Counter(path.shapes[at] for path in paths)
    common = {
        shape for shape, number in counts.items() if number >= MANY_ALIKE and (PLACEHOLDER in shape or not is_last)
    }
    parts: defaultdict[str, list[UrlPath]] = defaultdict(list)
    for path in paths:
        parts[path.shapes[at] if path.shapes[at] in common else ""].append(path)
    return [group for part in parts.values() for group in _split(part, at + 1)]


def _pattern(paths: Sequence[UrlPath]) -> str:
    columns = zip(*(path.shapes for path in paths), strict=True)
    segments = [_segment_pattern(dict.fromkeys(column)) for column in columns]
    pattern = "/" + "/".join(segments) + ("/" if paths[0].suffix == "/" and segments else "")
    return pattern + (f"?*{paths[0].names[0]}=*" if paths[0].names else "")


def _segment_pattern(shapes: Iterable[str]) -> str:
    """What several segments have in common before and after what differs, in whole words."""
    several = list(shapes)
    if len(several) == 1:
        return several[0].replace(PLACEHOLDER, "*")
    before = _common_start(several)
    before = before[: max(before.rfind(mark) for mark in _SEPARATORS) + 1]
    after = _common_start([shape[len(before) :][::-1] for shape in several])[::-1]
    starts = [at for mark in _SEPARATORS if (at := after.find(mark)) >= 0]
    after = after[min(starts) :] if starts else ""
    return _stars("*", f"{before}*{after}".replace(PLACEHOLDER, "*"))


def _common_start(texts: Sequence[str]) -> str:
    """The letters that all of them begin with."""
    first, last = min(texts), max(texts)
    return "".join(letter for letter, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
