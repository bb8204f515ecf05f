"""A small site whose pages a test sets one by one; it records requests and can be stopped and reopened."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from wait import HANG

Headers = dict[str, str]
Reply = tuple[int, Headers, bytes]


@dataclass(frozen=True)
class Hit:
    at: float  # on the server's own clock
    method: str
    path: str
    headers: Headers  # names in lower case
    body: bytes
    peer: str = ""  # the address it came from


@dataclass
class SmallSite:
    """`pages` by path without query; any other path gets `default`, and robots.txt allows everything."""

    pages: dict[str, Reply | Callable[[Hit], Reply]] = field(default_factory=dict)
    hits: list[Hit] = field(default_factory=list)
    port: int = 0
    host: str = "127.0.0.1"
    default: Reply = (404, {}, b"nothing here")

    @property
    def lane(self) -> str:
        return f"{self.host}:{self.port}"

    def url(self, path: str = "/") -> str:
        return f"http://{self.lane}{path}"

    def hits_for(self, path: str) -> list[Hit]:
        return [hit for hit in list(self.hits) if hit.path.partition("?")[0] == path]

    def answer(self, hit: Hit) -> Reply:
        path = hit.path.partition("?")[0]
        page = self.pages.get(path) or self.pages.get(path[: path.rindex("/") + 1] + "*")
        if page is None:
            return self.default if path != "/robots.txt" else (404, {}, b"")
        return page(hit) if callable(page) else page

    def open(self) -> None:
        """Listen; at the same port as before, if there was one."""
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def handle_one_request(self) -> None:
                self.close_connection = True
                with contextlib.suppress(OSError, ValueError):
                    super().handle_one_request()

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return self._any
                raise AttributeError(name)

            def _any(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                body, peer = self.rfile.read(length), str(self.client_address[0])
                hit = Hit(time.monotonic(), self.command, self.path, headers, body, peer)
                site.hits.append(hit)
                status, reply_headers, body = site.answer(hit)
                self.send_response_only(status)
                for name, value in ({"Content-Type": "text/html"} | reply_headers).items():
                    for line in value.split("\n"):
                        self.send_header(name, line)
                if status != 304:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD" and status != 304:
                    self.wfile.write(body)

        class Server(ThreadingHTTPServer):
            request_queue_size = 64

            def get_request(self) -> tuple[socket.socket, Any]:
                connection, address = super().get_request()
                site._connections.append(connection)
                return connection, address

            def handle_error(self, request: Any, address: Any) -> None: ...

        self._connections: list[socket.socket] = []
        self._server = Server((self.host, self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def die(self) -> None:
        """Stop listening and break off whatever goes on."""
        self._server.shutdown()
        self._server.server_close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def small_site(host: str = "127.0.0.1") -> Iterator[SmallSite]:
    site = SmallSite(host=host)
    site.open()
    try:
        yield site
    finally:
        site.die()


class GatedPage:
    """A page that is answered only when the test lets it be; `asked` counts who has come for it."""

    def __init__(self, answer: Reply | Callable[[Hit], Reply] | None = None) -> None:
        self.asked = threading.Semaphore(0)
        self.open = threading.Event()
        self._answer = answer or page("late")

    def __call__(self, hit: Hit) -> Reply:
        self.asked.release()
        self.open.wait(HANG)
        return self._answer(hit) if callable(self._answer) else self._answer


def slow_page(seconds: float) -> Callable[[Hit], Reply]:
    def answer(hit: Hit) -> Reply:
        time.sleep(seconds)
        return page(hit.path)

    return answer


def page(text: str = "", *links: str, status: int = 200, **headers: str) -> Reply:
    anchors = " ".join(f'<a href="{link}">{link}</a>' for link in links)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, names, f"<title>{text}</title><p>{text}</p>{anchors}".encode()


def moved(to: str, status: int = 302, **headers: str) -> Reply:
    return status, {"Location": to} | {name.replace("_", "-"): value for name, value in headers.items()}, b""
