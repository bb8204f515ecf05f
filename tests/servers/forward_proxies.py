"""Private forward proxies for tests: tinyproxy and squid over HTTP, dante over SOCKS5."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.proxy_process import find_program, proxy_process

TINYPROXY = """
Port {port}
Listen 127.0.0.1
Timeout 60
MaxClients 50
ViaProxyName "{name}"
{login}
"""
SQUID = """
http_port 127.0.0.1:{port}
pid_filename {folder}/squid.pid
access_log none
cache_log {folder}/cache.log
cache deny all
pinger_enable off
via on
visible_hostname {name}
shutdown_lifetime 0 seconds
http_access allow all
"""
DANTE = """
logoutput: {folder}/dante.log
internal: 127.0.0.1 port = {port}
external: lo
clientmethod: none
socksmethod: none
user.privileged: root
user.unprivileged: nobody
client pass {{ from: 127.0.0.0/8 to: 0.0.0.0/0 }}
socks pass {{ from: 0.0.0.0/0 to: 127.0.0.0/8 }}
"""


@contextmanager
def tinyproxy(name: str = "tiny", login: str = "") -> Iterator[str]:
    """Its URL, with the login that it asks for; sites see its name in the header Via."""
    program = find_program("tinyproxy", "tinyproxy-bin")

    def config(folder: Path, port: int) -> str:
        words = f"BasicAuth {login.replace(':', ' ')}" if login else ""
        return TINYPROXY.format(port=port, name=name, login=words)

    with proxy_process(name, config, lambda folder, file: [program, "-d", "-c", str(file)]) as url:
        yield url.replace("://", f"://{login}@") if login else url


@contextmanager
def squid(name: str = "squid") -> Iterator[str]:
    program = find_program("squid", "squid")

    def config(folder: Path, port: int) -> str:
        folder.chmod(0o777)  # it works as a user of its own
        return SQUID.format(port=port, folder=folder, name=name)

    with proxy_process(name, config, lambda folder, file: [program, "-N", "-f", str(file)]) as url:
        yield url


@contextmanager
def dante() -> Iterator[str]:
    program = find_program("danted", "dante-server")

    def config(folder: Path, port: int) -> str:
        folder.chmod(0o777)
        return DANTE.format(port=port, folder=folder)

    command = [program, "-f"]
    with proxy_process("dante", config, lambda folder, file: [*command, str(file)]) as url:
        yield url.replace("http://", "socks5h://")
