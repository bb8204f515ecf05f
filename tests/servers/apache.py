"""A private Apache for tests, with mod_proxy and a user of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.proxy_process import find_program, proxy_process

MODULES = Path("/usr/lib/apache2/modules")
STOCK_CONFIG = """
ServerRoot {folder}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {folder}/apache.pid
ErrorLog {folder}/error.log
DefaultRuntimeDir {folder}
Mutex posixsem
User nobody
Group nogroup
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule env_module {modules}/mod_env.so
LoadModule proxy_module {modules}/mod_proxy.so
LoadModule proxy_http_module {modules}/mod_proxy_http.so
ProxyPass / http://{upstream}/ flushpackets=on
{lines}
"""


@contextmanager
def stock_apache(upstream: str, lines: str = "") -> Iterator[str]:
    """As most people set it up: the URL under which it passes everything on."""
    program = find_program("apache2", "apache2")

    def config(folder: Path, port: int) -> str:
        return STOCK_CONFIG.format(folder=folder, port=port, modules=MODULES, upstream=upstream, lines=lines)

    with proxy_process("apache", config, lambda folder, file: [program, "-D", "FOREGROUND", "-f", str(file)]) as url:
        yield url
