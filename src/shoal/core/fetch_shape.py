"""Fetch shapes: what pages of a host have in common that are made alike, so that what one taught serves the others.

A shape is the path of a URL with its ids and slugs as `*`, and the names of its query: `/item/*?page`. A host
has a bounded number of them: where many differ in one word only, or in all there are too many, the next URLs
have a coarser one.
"""

from __future__ import annotations

import re
from collections.abc import Collection

MAX_SHAPES = 40  # of one host and one reader of its pages
MAX_SIBLINGS = 8  # shapes that one coarser shape would stand for
MAX_SEGMENTS = 6  # of a path; what is deeper counts as one
MAX_NAMES = 6  # of a query
MAX_SHAPE = 200  # letters
ANY = "*"
REST = "**"  # any number of segments
ALL = f"/{REST}"

_is_word = re.compile(r"[A-Za-z]{1,20}").fullmatch
_extension = re.compile(r"\.[A-Za-z]{2,5}$").search


def fetch_shape(url: str, known: Collection[str] = ()) -> str:
    """The shape of a canonical URL: one of those known, or a new one if there is room for it."""
    shape = finest_shape(url)
    while shape not in known and shape != ALL and not _has_room(shape, known):
        shape = coarser(shape)
    return shape


def finest_shape(url: str) -> str:
    path, mark, query = url.partition("://")[2].partition("/")[2].partition("?")
    segments = [_generalised(segment) for segment in path.split("/")]
    if len(segments) > MAX_SEGMENTS:
        segments = [*segments[: MAX_SEGMENTS - 1], REST]
    shape = "/" + "/".join(segments)
    if mark:
        names = sorted({_generalised(part.partition("=")[0]) for part in query.split("&")})
        shape = f"{shape}?{'&'.join(names) if len(names) <= MAX_NAMES else ANY}"
    return shape if len(shape) <= MAX_SHAPE else ALL


def coarser(shape: str) -> str:
    """The next shape that stands for more: without its query's names, then its last word, then all but its first."""
    path, mark, query = shape.partition("?")
    if mark:
        return path if query == ANY else f"{path}?{ANY}"
    head, _, last = path.rpartition("/")
    if last not in ("", ANY, REST) and not last.startswith(ANY):
        return f"{head}/{ANY}"
    first = path.split("/")[1]
    wider = f"/{first}/{REST}"
    return wider if first not in (ANY, REST, "") and path != wider else ALL


def _generalised(segment: str) -> str:
    """A plain word as it is; whatever may be an id, a number or a slug as `*`, with its extension."""
    if not segment or _is_word(segment):
        return segment
    found = _extension(segment)
    extension = found.group() if found else ""
    return segment if _is_word(segment.removesuffix(extension)) else ANY + extension.lower()


def _has_room(shape: str, known: Collection[str]) -> bool:
    if len(known) >= MAX_SHAPES:
        return False
    parent = coarser(shape)
    return sum(coarser(other) == parent for other in known) < MAX_SIBLINGS
