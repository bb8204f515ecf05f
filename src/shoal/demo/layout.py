"""The frame that every well-formed page of the demo site stands in."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

STYLE = """
:root { --ink: #22303c; --soft: #5c6b78; --line: #dde3e8; --paper: #fbfaf7; --card: #fff; --accent: #0b6e75; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 Georgia, "Times New Roman", serif; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
header.top { background: var(--ink); }
header.top nav, main, footer { max-width: 68rem; margin: 0 auto; padding: .9rem 1.25rem; }
header.top a { color: #fff; margin-right: 1.4rem; font-family: system-ui, sans-serif; font-size: .92rem; }
header.top a.brand { font: bold 1.2rem Georgia, serif; }
.breadcrumbs { color: var(--soft); font: .85rem system-ui, sans-serif; margin: .4rem 0 1rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: .2rem 0 .8rem; }
h2 { font-size: 1.25rem; margin: 2rem 0 .7rem; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); gap: 1rem;
  padding: 0; margin: 0; list-style: none; }
.product, .person, .quote { background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: .8rem; }
.product img { width: 100%; aspect-ratio: 3 / 4; border-radius: 4px; display: block; margin-bottom: .5rem; }
.product .price { display: block; margin-top: .3rem; font-family: system-ui, sans-serif; font-size: .9rem; }
.with-side { display: grid; grid-template-columns: 12rem 1fr; gap: 2rem; }
.side ul { list-style: none; padding: 0; margin: 0; font: .9rem/1.9 system-ui, sans-serif; }
.book { display: grid; grid-template-columns: 13rem 1fr; gap: 1.6rem; }
.book > img { width: 100%; border-radius: 6px; }
.book .price { font: bold 1.5rem system-ui, sans-serif; margin: .2rem 0; }
.stock { color: var(--soft); font-family: system-ui, sans-serif; margin: .2rem 0 1rem; }
table { border-collapse: collapse; width: 100%; font: .92rem system-ui, sans-serif; }
th, td { border-bottom: 1px solid var(--line); text-align: left; padding: .45rem .6rem; vertical-align: top; }
.pager { display: flex; gap: 2rem; list-style: none; padding: 0; margin: 1.6rem 0;
  font-family: system-ui, sans-serif; }
.quote { margin: 0 0 1rem; }
.note, .author, .by { color: var(--soft); }
footer { color: var(--soft); border-top: 1px solid var(--line); margin-top: 2.5rem;
  font: .85rem system-ui, sans-serif; }
footer a { margin-right: 1rem; }
@media (max-width: 44rem) { .with-side, .book { display: block; } .side { display: none; } }
"""

_TOP = f"""<style>{STYLE}</style>
</head>
<body>
<header class="top"><nav>
<a class="brand" href="/">Shoal Books</a>
<a href="/catalogue/">Catalogue</a>
<a href="/people/">Readers</a>
<a href="/quotes/">Overheard</a>
<a href="/odd/">Odd pages</a>
</nav></header>
<main>
"""

_BOTTOM = """
</main>
<footer>
<p>A shop that does not exist, for scrapers that do. Nothing here is for sale.</p>
<p><a href="/sitemap.xml">Sitemap</a> <a href="/robots.txt">robots.txt</a>
<a href="/private/">Staff only</a></p>
</footer>
</body>
</html>
"""

Crumb = tuple[str, str]


def link(href: str, text: str, css: str = "") -> str:
    kind = f' class="{css}"' if css else ""
    return f'<a{kind} href="{escape(href)}">{escape(text)}</a>'


def page(title: str, main: str, *, crumbs: Sequence[Crumb] = (), head: str = "") -> str:
    """A whole document; `main` and `head` are HTML, everything else is text."""
    trail = ""
    if crumbs:
        steps = " › ".join(link(href, text) for href, text in crumbs)
        trail = f'<p class="breadcrumbs">{steps} › <span>{escape(title)}</span></p>\n'
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · Shoal Books</title>\n{head}{_TOP}{trail}{main}{_BOTTOM}"
    )


def pager(base: str, number: int, last: int) -> str:
    """Links to the neighbouring pages of a listing whose first page is `base` itself."""
    items = []
    if number > 1:
        items.append(f'<li class="previous">{link(numbered(base, number - 1), "previous")}</li>')
    items.append(f'<li class="current">Page {number} of {last}</li>')
    if number < last:
        items.append(f'<li class="next">{link(numbered(base, number + 1), "next")}</li>')
    return f'<ul class="pager">{"".join(items)}</ul>'


def numbered(base: str, number: int) -> str:
    return base if number == 1 else f"{base}page-{number}.html"


def page_number(name: str) -> int:
    """The number in "page-7.html", 1 for an empty name, 0 for anything else."""
    if name == "":
        return 1
    digits = name.removeprefix("page-").removesuffix(".html")
    plain = digits.isascii() and digits.isdigit() and len(digits) < 9
    return int(digits) if plain and name == f"page-{int(digits)}.html" else 0
