"""Messages: one request to the demo site and its response, as plain values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class SiteRequest:
    """One request, taken apart. `visit` is 1 for the first request of this target."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    visit: int
    origin: str  # scheme, host and port as the client named them, for absolute links

    @property
    def parts(self) -> list[str]:
        """The segments after the section's name; a trailing slash gives a last empty one."""
        return self.path.split("/")[2:]


@dataclass(frozen=True, slots=True)
class SiteResponse:
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    chunks: Callable[[], Iterator[bytes]] | None = None  # sent chunked, instead of the body
    delay: float = 0.0  # seconds before the first byte
    pause: float = 0.0  # seconds between two chunks

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


def html_response(text: str | bytes, status: int = 200, *, kind: str = HTML, delay: float = 0.0) -> SiteResponse:
    body = text.encode() if isinstance(text, str) else text
    return SiteResponse(status, (("content-type", kind),), body, delay=delay)


def text_response(text: str, status: int = 200, *headers: tuple[str, str]) -> SiteResponse:
    return SiteResponse(status, (("content-type", "text/plain; charset=utf-8"), *headers), text.encode())


def json_response(value: Any, status: int = 200) -> SiteResponse:
    body = json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n"
    return SiteResponse(status, (("content-type", "application/json"),), body)


def redirect_response(location: str, status: int = 302) -> SiteResponse:
    return SiteResponse(
        status, (("location", location), ("content-type", "text/plain; charset=utf-8")), f"See {location}\n".encode()
    )


def with_etag(answer: SiteResponse) -> SiteResponse:
    """The same answer with an ETag made from its body."""
    tag = blake2b(answer.body, digest_size=8).hexdigest()
    return SiteResponse(answer.status, (*answer.headers, ("etag", f'"{tag}"')), answer.body)
