"""A private HAProxy for tests, with a user of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.proxy_process import find_program, proxy_process

STOCK_CONFIG = """
global
    user nobody
    group nogroup
    maxconn 64
defaults
    mode http
    timeout connect 60s
    timeout client 300s
    timeout server 300s
listen shoal
    bind 127.0.0.1:{port}
    {lines}
    server shoal {upstream}
"""


@contextmanager
def stock_haproxy(upstream: str, lines: str = "") -> Iterator[str]:
    """As most people set it up: the URL under which it passes everything on."""
    program = find_program("haproxy", "haproxy")

    def config(folder: Path, port: int) -> str:
        return STOCK_CONFIG.format(port=port, upstream=upstream, lines=lines)

    with proxy_process("haproxy", config, lambda folder, file: [program, "-db", "-f", str(file)]) as url:
        yield url
