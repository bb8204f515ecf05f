"""Charsets: letters that are not what they are said to be."""

from __future__ import annotations

from hostile.behaviour import Group
from hostile.client_connection import answer, html

group = Group("charsets")


def typed(charset: str) -> str:
    return f"Content-Type: text/html; charset={charset}"


group.says(
    "charset-utf-7",
    "done",
    "utf-7, which browsers no longer know",
    answer("<title>+ADw-script+AD4-</title>", typed("utf-7")),
)
group.says("charset-unknown", "done", "a charset nobody knows", answer(html("café"), typed("klingon-8")))
group.says("charset-dangerous", "done", "a codec that is none for text", answer(html("odd"), typed("zlib_codec")))
group.says(
    "charset-punycode",
    "done",
    "a codec that takes its time with long texts",
    answer(html("x" * 200_000), typed("punycode")),
)
group.says(
    "charset-utf-16-no-mark",
    "done",
    "utf-16 without a mark",
    answer(html("sixteen").encode("utf-16-le"), typed("utf-16")),
)
group.says(
    "charset-utf-16-odd",
    "done",
    "utf-16 with an odd number of bytes",
    answer(html("odd").encode("utf-16-le") + b"x", typed("utf-16le")),
)
group.says(
    "charset-replacement", "done", "a charset that is only ever an attack", answer(html("odd"), typed("iso-2022-kr"))
)
group.says(
    "charset-quarrel",
    "done",
    "header, mark and markup disagree",
    answer(b"\xef\xbb\xbf<meta charset=koi8-r><title>\xd0\xb6</title>", typed("shift_jis")),
)
group.says(
    "utf-8-broken",
    "done",
    "bytes that are not utf-8",
    answer(b"<title>\xff\xfe\xc0\x80\xed\xa0\x80\xf5</title>" * 100, typed("utf-8")),
)
group.says(
    "nul-in-html", "done", "NUL bytes everywhere", answer(b"<ti\x00tle>a\x00b</title>\x00<a href='/\x00x'>\x00</a>")
)
group.says(
    "half-surrogates",
    "done",
    "half a surrogate pair, by number",
    answer("<title>&#xD800;&#xDFFF;&#0;&#x110000;</title>"),
)
group.says(
    "all-controls", "done", "every control character", answer(b"<title>" + bytes(range(1, 32)) + b"\x7f</title>")
)
group.says(
    "right-to-left", "done", "overrides that turn lines around", answer("<title>\u202egpj.exe\u2066\u200b</title>")
)
