"""A private nginx for tests: the shipped configuration, with ports, names and files of this test in it."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE = 20.0
SHIPPED = Path(__file__).parents[2] / "docs" / "nginx.conf"
SERVERS = ("10.0.0.11:8080", "10.0.0.12:8080")  # as the shipped file names them

WHOLE = """
daemon off;
worker_processes 1;
error_log {folder}/error.log warn;
pid {folder}/nginx.pid;
{user}
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/shoal.conf;
}}
"""


def program() -> str:
    """nginx; where there is none, tests are skipped on a laptop and fail in CI."""
    if found := shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin"):
        return found
    missing = "no nginx here: install your system's package nginx-light"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


class Nginx:
    def __init__(self, port: int, plain: int, certificate: Path, folder: Path) -> None:
        self.url = f"https://localhost:{port}"
        self.plain = f"http://localhost:{plain}"
        self.certificate = certificate
        self._folder = folder

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))

    @property
    def said(self) -> str:
        return (self._folder / "error.log").read_text()


def certify(folder: Path) -> Path:
    """A certificate for the name localhost, signed by nobody but itself; its key is beside it."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    return folder / "cert.pem"


@contextmanager
def nginx(places: Sequence[str], **changed: str) -> Iterator[Nginx]:
    """In front of two servers ("127.0.0.1:1234"); `changed`: words of the shipped file, and others."""
    command = program()
    with tempfile.TemporaryDirectory(prefix="shoal-nginx-") as name:
        folder = Path(name)
        made = Nginx(_free_port(), _free_port(), certify(folder), folder)
        (folder / "shoal.conf").write_text(_here(places, made, folder, changed))
        user = "user root;" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(WHOLE.format(folder=folder, user=user))
        with subprocess.Popen(
            [command, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                _wait(process, made)
                yield made
            finally:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()


def _here(places: Sequence[str], made: Nginx, folder: Path, changed: dict[str, str]) -> str:
    text = SHIPPED.read_text()
    port, plain = (url.rpartition(":")[2] for url in (made.url, made.plain))
    swaps = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "listen 80": f"listen 127.0.0.1:{plain}",
        "server_name shoal.example": "server_name localhost",
        "/etc/ssl/shoal": str(folder),
        **dict(zip(SERVERS, places, strict=True)),
        **changed,
    }
    for old, new in swaps.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def _wait(process: subprocess.Popen[bytes], made: Nginx) -> None:
    end = time.monotonic() + PATIENCE
    port = int(made.url.rpartition(":")[2])
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 2).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"nginx did not start: {made.said}")
            time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
