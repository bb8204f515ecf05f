"""Status: first lines that are none, and answers that are not HTTP at all."""

from __future__ import annotations

import random

from hostile.behaviour import Group
from hostile.client_connection import answer, html

group = Group("status")
PAGE = html("status")
NOISE = random.Random(7).randbytes(20_000)


group.says("http-0.9", "bad_response", "a page without any headers", PAGE.encode())
group.says("noise", "bad_response", "20 KB of noise", NOISE)
group.says("noise-with-line-ends", "bad_response", "noise with line ends in it", NOISE.replace(b"\x07", b"\r\n"))
group.says("other-protocol", "bad_response", "the greeting of another protocol", b"SSH-2.0-OpenSSH_9.9\r\n")
group.says("binary-status", "bad_response", "a status line with bytes for letters", b"HTTP/1.1 \xff\xfe\x00 OK\r\n\r\n")
group.says("status-missing", "bad_response", "a status line without a status", b"HTTP/1.1\r\n\r\nhello")
group.says("status-words", "bad_response", "a word for a status", b"HTTP/1.1 fine\r\n\r\nhello")
group.says("status-000", "bad_response", "status 000", answer(PAGE, status="000 Nothing"))
group.says("status-long", "bad_response|done", "a status of four digits", answer(PAGE, status="2000 OK"))
group.says("status-999", "http.999", "status 999", answer(PAGE, status="999 Request denied"))
group.says("status-299", "done", "a good status nobody knows", answer(PAGE, status="299 Fine"))
group.says(
    "status-407",
    "http.407",
    "asks for the login of a proxy there is none of",
    answer(PAGE, "Proxy-Authenticate: Basic", status="407 Proxy Authentication Required"),
)
group.says("version-9", "bad_response", "HTTP/9.9", answer(PAGE).replace(b"HTTP/1.1", b"HTTP/9.9"))
group.says(
    "version-2-in-plain", "bad_response|done", "says HTTP/2 in plain text", answer(PAGE).replace(b"HTTP/1.1", b"HTTP/2")
)
group.says("204-with-body", "done", "no content, and yet some", answer(PAGE, status="204 No Content"))
group.says(
    "304-unasked", "http.304", "not modified, though nobody asked, and a body", answer(PAGE, status="304 Not Modified")
)
group.says(
    "206-unasked",
    "done",
    "a part of a page, though nobody asked for one",
    answer(PAGE, "Content-Range: bytes 0-9/99", status="206 Partial Content"),
)
group.says(
    "retry-after-1e9", "http.503", "come again in 30 years", answer(PAGE, "Retry-After: 1000000000", status="503 Busy")
)
group.says(
    "retry-after-odd",
    "http.429",
    "come again, but when is unclear",
    answer(PAGE, "Retry-After: Fri, 99 Foo 9999 99:99:99", status="429 Slow down"),
)
group.says(
    "not-found-20mb",
    "http.404",
    "a page of 20 MB to say that there is none",
    answer(b"x" * 20_000_000, status="404 Not Found"),
)
