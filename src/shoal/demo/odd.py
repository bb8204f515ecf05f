"""The odd pages: slow, flaky, busy, gone, redirected, compressed, large; and the index of them all."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from html import escape

from shoal.demo import words
from shoal.demo.broken import COUNT as BROKEN
from shoal.demo.encoding import VARIANTS
from shoal.demo.layout import link, page
from shoal.demo.messages import (
    SiteRequest,
    SiteResponse,
    html_response,
    json_response,
    redirect_response,
    text_response,
)
from shoal.demo.seeded_random import SeededRandom
from shoal.demo.shop import Shop

MAX_DELAY_MS = 30_000  # milliseconds
MAX_SIZE_KB = 65_536  # kilobytes
MAX_DRIPS = 600
LINE = 1024

GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Slow": ("answers late", ("/slow/50", "/slow/300", "/slow/1000", "/drip/5")),
    "Flaky": ("500 at first, 200 after one to three visits", tuple(f"/flaky/{n}" for n in range(6))),
    "Busy": ("429 with Retry-After on the first two visits", ("/busy/1", "/busy/2")),
    "Down": ("always 503 with Retry-After", ("/down/1",)),
    "Gone": ("always 404", ("/gone/1", "/gone/2")),
    "Forbidden": ("always 403", ("/forbidden/1",)),
    "Redirects": (
        "to a product, in chains, in circles, to another host",
        ("/redirect/1", "/redirect/2", "/redirect/chain/0", "/redirect/chain/1", "/redirect/chain/3",
         "/redirect/chain/30", "/redirect/loop/a", "/redirect/loop/b", "/redirect/away"),
    ),
    "Broken HTML": ("what browsers forgive", tuple(f"/broken/{n}" for n in range(1, BROKEN + 1))),
    "Encodings": ("one page, many encodings", tuple(f"/encoding/{name}" for name in VARIANTS)),
    "Compressed": ("compressed whatever the client accepts", ("/compressed/gzip", "/compressed/deflate")),
    "Large": ("sent in chunks", ("/big/64", "/big/2048")),
    "Not pages": ("other kinds of content", ("/empty", "/binary.pdf", "/image.png", "/download.csv")),
}  # fmt: skip

SPELLINGS = (
    "/odd/links/", "./", "/odd/../odd/links/", "/odd/./links/", "../links/", "#here", "/odd/links/#there",
    " /odd/links/ ", "/od\td/lin\nks/", "\\odd\\links\\",
)  # fmt: skip
NOT_LINKS = (
    "mailto:shop@example.invalid", "tel:+000", "javascript:void(0)", "data:text/plain,hello",
    "ftp://127.0.0.1/file",
    "http://exa mple.invalid/", "http://[::zz]/", "http://127.0.0.1:99999/",
)  # fmt: skip


class Odd:
    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self._sections = {
            "slow": slow,
            "drip": drip,
            "flaky": flaky,
            "busy": busy,
            "down": down,
            "gone": gone,
            "forbidden": forbidden,
            "redirect": self._redirect,
            "compressed": compressed,
            "big": big,
        }
        self.names = frozenset(self._sections)

    def answer(self, section: str, request: SiteRequest) -> SiteResponse | None:
        return self._sections[section](request)

    def index(self, request: SiteRequest) -> SiteResponse | None:
        """/odd/ itself, /odd/links/ and /odd/maze/."""
        match request.parts:
            case []:
                return redirect_response("/odd/", 301)
            case [""]:
                return html_response(_index())
            case ["links", ""]:
                return html_response(_links())
            case ["maze", ""]:
                return html_response(_maze_door())
        return None

    def paths(self) -> Iterator[str]:
        """Every odd URL that /odd/ links to, itself included."""
        yield "/odd/"
        yield "/odd/links/"
        for _, paths in GROUPS.values():
            yield from paths

    def _redirect(self, request: SiteRequest) -> SiteResponse | None:
        match request.parts:
            case [digits] if (number := _number(digits)) is not None:
                return redirect_response(self.shop.product(number % self.shop.count + 1).path)
            case ["loop", "a" | "b" as here]:
                return redirect_response("/redirect/loop/" + ("b" if here == "a" else "a"))
            case ["chain", digits] if (number := _number(digits)) is not None:
                return _chain(number)
            case ["away"]:
                port = request.origin.rpartition(":")[2]
                return redirect_response(f"http://127.0.0.2:{port}/" if port.isdigit() else "http://127.0.0.2/")
        return None


def slow(request: SiteRequest) -> SiteResponse | None:
    ms = _only_number(request)
    if ms is None:
        return None
    ms = min(ms, MAX_DELAY_MS)
    return html_response(_note("Slow", f"This page took {ms} ms."), delay=ms / 1000)


def drip(request: SiteRequest) -> SiteResponse | None:
    """/drip/<n>: so many pieces, a tenth of a second apart."""
    count = _only_number(request)
    if count is None:
        return None
    pieces = [f"<p>Drop {n}.</p>\n".encode() for n in range(1, min(count, MAX_DRIPS) + 1)]
    start = b"<!DOCTYPE html>\n<title>Drip</title>\n<h1>Drip</h1>\n"
    return SiteResponse(200, (("content-type", "text/html"),), chunks=lambda: iter([start, *pieces]), pause=0.1)


def flaky(request: SiteRequest) -> SiteResponse | None:
    number = _only_number(request)
    if number is None:
        return None
    if request.visit <= number % 3 + 1:
        return html_response(_note("Internal error", "Something fell off a shelf. It may work next time."), 500)
    return html_response(_note(f"Flaky page {number}", "It works now."))


def busy(request: SiteRequest) -> SiteResponse | None:
    number = _only_number(request)
    if number is None:
        return None
    if request.visit <= 2:
        return text_response("Too many requests. Come back in a second.\n", 429, ("retry-after", "1"))
    return html_response(_note(f"Busy page {number}", "Thank you for waiting."))


def down(request: SiteRequest) -> SiteResponse | None:
    return text_response("Closed for stocktaking.\n", 503, ("retry-after", "1")) if len(request.parts) == 1 else None


def gone(request: SiteRequest) -> SiteResponse | None:
    return html_response(_note("Not found", "This book was never written."), 404)


def forbidden(request: SiteRequest) -> SiteResponse | None:
    return html_response(_note("Forbidden", "This shelf is not for you."), 403) if len(request.parts) == 1 else None


def compressed(request: SiteRequest) -> SiteResponse | None:
    """Compressed although nobody asked for it, as some servers do."""
    body = _note("Compressed", words.paragraph(SeededRandom("compressed"), 12)).encode()
    match request.parts:
        case ["gzip"]:
            packed = gzip.compress(body, mtime=0)
        case ["deflate"]:
            packed = zlib.compress(body)
        case _:
            return None
    return SiteResponse(
        200, (("content-type", "text/html; charset=utf-8"), ("content-encoding", request.parts[0])), packed
    )


def big(request: SiteRequest) -> SiteResponse | None:
    """/big/<kb>: exactly so many kilobytes, in chunks of sixteen."""
    size = _only_number(request)
    if size is None:
        return None
    size = min(max(size, 2), MAX_SIZE_KB)

    def lines() -> Iterator[str]:
        yield f"<!DOCTYPE html><title>Big</title><h1>{size} KB</h1>"
        for number in range(2, size):
            yield f'<p id="line-{number}">Line {number} of {size}. <a href="/odd/">back</a>'
        yield f'<p id="last">The end of {size} KB.</p></html>'

    def chunks() -> Iterator[bytes]:
        held = b""
        for line in lines():
            held += line.ljust(LINE - 1).encode() + b"\n"
            if len(held) >= 16 * LINE:
                yield held
                held = b""
        if held:
            yield held

    return SiteResponse(200, (("content-type", "text/html; charset=utf-8"),), chunks=chunks)


def echo(request: SiteRequest) -> SiteResponse:
    """What the server understood of the request."""
    return json_response(
        {
            "method": request.method,
            "path": request.path,
            "query": request.query,
            "headers": dict(request.headers),
            "visit": request.visit,
        }
    )


def _chain(hops: int) -> SiteResponse | None:
    if hops > 1000:
        return None
    if hops == 0:
        return html_response(_note("The end of the chain", "You followed every hop."))
    return redirect_response(f"/redirect/chain/{hops - 1}", (301, 302, 303, 307, 308)[hops % 5])


def _number(digits: str) -> int | None:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None


def _only_number(request: SiteRequest) -> int | None:
    return _number(request.parts[0]) if len(request.parts) == 1 else None


def _note(title: str, text: str) -> str:
    return page(title, f'<h1>{escape(title)}</h1>\n<p class="body">{escape(text)}</p>', crumbs=[("/odd/", "Odd pages")])


def _index() -> str:
    sections = "\n".join(
        f'<h2>{escape(name)}</h2>\n<p class="note">{escape(what)}</p>\n<p class="odd">'
        + " · ".join(link(path, path) for path in paths)
        + "</p>"
        for name, (what, paths) in GROUPS.items()
    )
    main = (
        "<h1>Odd pages</h1>\n<p>Everything that goes wrong on the web, in one place.</p>\n"
        f"{sections}\n<h2>Links</h2>\n<p "
        f'class="odd">{link("/odd/links/", "many spellings of one URL")}</p>\n'
        f'<h2>Traps</h2>\n<p class="odd">{link("/trap/calendar/2026/01", "an endless calendar")}, '
        "which robots.txt forbids. There is also a maze; it is not linked from anywhere, so that a crawl of "
        "the whole site comes to an end. Its door is at <code>/odd/maze/</code>.</p>"
    )
    return page("Odd pages", main, crumbs=[("/", "Home")])


def _links() -> str:
    same = "\n".join(f'<li><a href="{escape(href)}">this page</a></li>' for href in SPELLINGS)
    none = "\n".join(f'<li><a href="{escape(href)}">not a page</a></li>' for href in NOT_LINKS)
    main = f"<h1>Links</h1>\n<h2>All the same page</h2>\n<ul>\n{same}\n</ul>\n<h2>No pages</h2>\n<ul>\n{none}\n</ul>"
    return page("Links", main, crumbs=[("/", "Home"), ("/odd/", "Odd pages")])


def _maze_door() -> str:
    main = f"<h1>The maze</h1>\n<p>It has no exit: {link('/maze/start/', 'enter', 'enter')}.</p>"
    return page("The maze", main, crumbs=[("/", "Home"), ("/odd/", "Odd pages")])
