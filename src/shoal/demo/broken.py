"""Broken HTML: documents that real sites serve and browsers forgive.

Every variant has one h1 that reads "Broken page <n>" and a working link to /odd/. Links inside comments,
scripts and templates lead to /gone/bait-…, which nobody should ever ask for.
"""

from __future__ import annotations

from shoal.demo.messages import SiteResponse, html_response

_TEMPLATES = (
    # 1: hardly anything is ever closed
    "<html><head><title>Unclosed</title><body><h1>Broken page 1<p>One<p>Two<ul><li>Three<li>Four"
    "<table><tr><td>Five<td>Six<tr><td><a href=/odd/>back",
    # 2: tables in tables, text where only rows may stand
    "<html><body><h1>Broken page 2</h1><table><tr><td><table>stray text<tr><td>inner<table><td>innermost"
    '</table></table><td>outer<tr>loose<td><a href="/odd/">back</a></table></table></body></html>',
    # 3: no html, head or body
    'no frame at all<h1>Broken page 3</h1>text after<br/><a href="/odd/">back</a>',
    # 4: NUL bytes in text, in a tag and in an attribute
    '<!DOCTYPE html><title>N\0UL</title><h1>Broken page 4</h1><p cla\0ss="x\0y">a\0b</p><a '
    'href="/odd/">back</a>\0',
    # 5: the same attribute twice; the first one counts
    '<!DOCTYPE html><title>Twice</title><h1 id="a" id="b" class="x" class="y">Broken page 5</h1>'
    '<a href="/odd/" href="/gone/bait-second-href">back</a>',
    # 6: unquoted and half-quoted attributes, odd spacing
    "<!DOCTYPE html><title>Quotes</title><h1 class = big title='it''s'>Broken page 6</h1>"
    "<img alt=a>b src=/image.png><a  HREF =  /odd/  >back</a >",
    # 7: links that are no links
    "<!DOCTYPE html><title>Bait</title><h1>Broken page 7</h1><!-- <a href='/gone/bait-comment'>x</a> -->"
    "<script>document.write(\"<a href='/gone/bait-script'>x</a>\")</script>"
    "<template><a href='/gone/bait-template'>x</a></template><textarea><a "
    "href='/gone/bait-textarea'></textarea>"
    '<a href="/odd/">back</a>',
    # 8: wrongly nested inline tags and forms
    "<!DOCTYPE html><title>Nesting</title><p><b><i>bold</b> slanted</i></p><h1>Broken page 8</h1>"
    '<form><form><p><a href="/odd/"><b>back</a></p></b></form>',
    # 9: cut off in the middle of a tag
    '<!DOCTYPE html><title>Cut</title><h1>Broken page 9</h1><a href="/odd/">back</a><p>and then it '
    'sto<a href="/gone/ba',
    # 10: two heads, two bodies, two titles, a doctype in the middle
    '<html><head><title>First</title></head><body><h1>Broken page 10</h1></body></html><!DOCTYPE '
    'html><html><head>'
    '<title>Second</title></head><body class="late"><a href="/odd/">back</a></body></html>',
    # 11: wrong references to characters
    "<!DOCTYPE html><title>Caf&eacute &amp;amp; &#xFFFFFF; &nosuch;</title><h1>Broken&#32;page&#x20;11</h1>"
    '<p>&copy 2026 &lt;p&gt &notit; &#150;</p><a href="&#x2f;odd&sol;">back</a>',
    # 12: deeper than anybody writes by hand
    "<!DOCTYPE html><title>Deep</title>" + "<div>" * 400 + '<h1>Broken page 12</h1><a href="/odd/">back</a>',
)  # fmt: skip

COUNT = len(_TEMPLATES)


def broken(name: str) -> SiteResponse | None:
    if not (name.isascii() and name.isdigit() and len(name) < 4 and 1 <= int(name) <= COUNT):
        return None
    return html_response(_TEMPLATES[int(name) - 1])
