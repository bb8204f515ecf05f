"""Request and Response: what goes over the wire and what came back, as plain values."""

from __future__ import annotations

import msgspec

RENDERED_HEADER = "x-shoal-rendered"  # of our own, on stored pages: they are as a browser gave them


class Request(msgspec.Struct, frozen=True, gc=False):
    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    timeout: float = 30.0
    key: bytes = b""  # what it is known by, where the URL alone does not say it
    proxy: str = ""  # http://, https:// or socks5h:// with its login, if it has one; "" is direct
    connections: str = ""  # whose connections it uses: those that anybody's plain requests share, or its run's own
    cache: float = 0.0  # seconds for which a stored response will do; below 0: by HTTP's rules; 0: none will
    exit: str = ""  # the name of the exit it leaves by; "": as `proxy` says
    session: str = ""  # who asks: the requests of one keep their proxy of an exit
    first: int = 0  # so many bytes of the body are enough: no more is read, and the answer is good


class Response(msgspec.Struct, frozen=True):
    """One answer. Redirects are not followed here: a 3xx is an answer like any other."""

    url: str
    status: int
    headers: tuple[tuple[str, str], ...]  # names in lower case, in the order received
    body: bytes
    seconds: float = 0.0
    address: str = ""  # the IP really connected to
    redirects: tuple[str, ...] = ()  # the URLs that led here, first to last
    transferred: int = 0  # bytes that were sent and received for it; 0: nobody has counted them
    cache: str = ""  # hit (nobody was asked), revalidated (the site said that it has not changed), miss; "": no cache

    @property
    def from_cache(self) -> bool:
        return self.cache in ("hit", "revalidated")

    @property
    def was_rendered(self) -> bool:
        """Whether it was stored as a browser gave it."""
        return bool(self.header(RENDERED_HEADER))

    def header(self, name: str, default: str = "") -> str:
        name = name.lower()
        for key, value in self.headers:
            if key == name:
                return value
        return default
