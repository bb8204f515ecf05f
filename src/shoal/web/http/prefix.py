"""Prefix: lets the pages live below a path of another application, such as /shoal.

Inside, every path is as if there were no prefix; it is taken off requests and put before the links of the
pages and of redirects. Texts on pages are escaped, so that `href="/` is always a link of ours.
"""

from __future__ import annotations

import re
from html import escape
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PREFIX_KEY = "shoal.prefix"  # in the scope of a request
_LINK = re.compile(rb'((?:href|action|src|hx-get|hx-post|data-from)=")/(?!/)')


def without_prefix(scope: Scope) -> Scope:
    """The scope as if the application was not mounted, with the prefix kept for PrefixedPages."""
    prefix, path = scope.get("root_path", "").rstrip("/"), scope["path"]
    if prefix and (path == prefix or path.startswith(f"{prefix}/")):
        path = path[len(prefix) :]
    inner = {name: value for name, value in scope.items() if name not in ("app_root_path", "raw_path", "state")}
    return inner | {"path": path or "/", "root_path": "", PREFIX_KEY: quote(prefix)}


def server_url(request: Request) -> str:
    """The URL of this server as the caller knows it, without a slash at its end."""
    return str(request.base_url).rstrip("/") + str(request.scope.get(PREFIX_KEY, ""))


class PrefixedPages:
    """Puts the prefix before links; around what answers, inside of what compresses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = scope.get(PREFIX_KEY, "")
        if prefix and scope["type"] == "http":
            send = _LinkRewriter(prefix, send)
        await self._app(scope, receive, send)


class _LinkRewriter:
    """One response: a page is held until it is whole, everything else passes as it comes."""

    def __init__(self, prefix: str, send: Send) -> None:
        self._prefix = prefix
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            if headers.get("location", "").startswith("/"):
                headers["location"] = self._prefix + headers["location"]
            if headers.get("content-type", "").startswith("text/html"):
                self._start = message
                return
        elif self._start is not None:
            self._body += message.get("body", b"")
            if message.get("more_body"):
                return
            message = {"type": "http.response.body", "body": self._rewritten()}
            MutableHeaders(raw=self._start["headers"])["content-length"] = str(len(message["body"]))
            await self._send(self._start)
            self._start = None
        await self._send(message)

    def _rewritten(self) -> bytes:
        prefix = escape(self._prefix).encode()
        page = _LINK.sub(rb"\1" + prefix.replace(b"\\", b"\\\\") + b"/", self._body)
        return page.replace(b"<html ", b'<html data-prefix="' + prefix + b'" ', 1)
