"""A private nginx for tests: the shipped configuration, with ports, names and files of this test in it."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from wait import HANG, wait_until

from servers.ports import free_port
from servers.proxy_process import accepts, find_program, proxy_process

SHIPPED = Path(__file__).parents[2] / "deploy" / "nginx"
SERVERS = ("10.0.0.11:8080", "10.0.0.12:8080")  # as the shipped file names them

MAIN_CONFIG = """
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
    return find_program("nginx", "nginx-light")


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
    def error_log(self) -> str:
        return (self._folder / "error.log").read_text()


def make_certificate(folder: Path) -> Path:
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
def nginx(upstreams: Sequence[str], **changed: str) -> Iterator[Nginx]:
    """In front of two servers ("127.0.0.1:1234"); `changed`: words of the shipped files, and others for them."""
    command = program()
    with tempfile.TemporaryDirectory(prefix="shoal-nginx-") as name:
        folder = Path(name)
        nginx_server = Nginx(free_port(), free_port(), make_certificate(folder), folder)
        _write_config(upstreams, nginx_server, folder, changed)
        user = "user root;" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(MAIN_CONFIG.format(folder=folder, user=user))
        with subprocess.Popen(
            [command, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                _wait(process, nginx_server)
                yield nginx_server
            finally:
                process.terminate()
                try:
                    process.wait(HANG)
                except subprocess.TimeoutExpired:
                    process.kill()


STOCK_CONFIG = """
daemon off;
worker_processes 1;
error_log {folder}/error.log warn;
pid {folder}/nginx.pid;
user nobody nogroup;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://{upstream}; {lines} }}
    }}
}}
"""


@contextmanager
def stock_nginx(upstream: str, lines: str = "") -> Iterator[str]:
    """As most people set it up, with a user of its own: the URL under which it passes everything on."""
    command = program()

    def config(folder: Path, port: int) -> str:
        return STOCK_CONFIG.format(folder=folder, port=port, upstream=upstream, lines=lines)

    def arguments(folder: Path, file: Path) -> list[str]:
        return [command, "-p", str(folder), "-e", f"{folder}/error.log", "-c", str(file)]

    with proxy_process("nginx", config, arguments) as url:
        yield url


@contextmanager
def container_nginx(upstreams: Sequence[str]) -> Iterator[str]:
    """The shipped configuration of a container, run by nobody: the URL under which it answers."""
    command = program()
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []

    def config(folder: Path, port: int) -> str:
        shutil.copytree(SHIPPED / "shoal", folder / "shoal")
        text = (SHIPPED / "container.conf").read_text().replace("listen 8080", f"listen 127.0.0.1:{port}")
        for number, place in enumerate(upstreams, 1):
            text = text.replace(f"server-{number}:8080", place)
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o777)
        return text.replace("/tmp/", f"{folder}/tmp/").replace("/dev/stderr", f"{folder}/tmp/error.log")

    def arguments(folder: Path, file: Path) -> list[str]:
        return [*as_nobody, command, "-e", f"{folder}/tmp/error.log", "-c", str(file), "-g", "daemon off;"]

    with proxy_process("nginx", config, arguments) as url:
        yield url


def _write_config(upstreams: Sequence[str], nginx_server: Nginx, folder: Path, changed: dict[str, str]) -> None:
    """The shipped files, with the ports and names of this test in them."""
    port, plain = (url.rpartition(":")[2] for url in (nginx_server.url, nginx_server.plain))
    replacements = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "listen 80": f"listen 127.0.0.1:{plain}",
        "server_name shoal.example": "server_name localhost",
        "/etc/ssl/shoal": str(folder),
        **(dict(zip(SERVERS, upstreams, strict=True)) if upstreams else {}),
        **changed,
    }
    shutil.copytree(SHIPPED / "shoal", folder / "shoal")
    shutil.copy(SHIPPED / "shoal.conf", folder)
    files = [folder / "shoal.conf", *(folder / "shoal").iterdir()]
    texts = {file: file.read_text() for file in files}
    for old, new in replacements.items():
        assert any(old in text for text in texts.values()), old
        texts = {file: text.replace(old, new) for file, text in texts.items()}
    for file, text in texts.items():
        file.write_text(text)


def _wait(process: subprocess.Popen[bytes], nginx_server: Nginx) -> None:
    port = int(nginx_server.url.rpartition(":")[2])

    def answers() -> bool:
        if process.poll() is not None:
            pytest.fail(f"nginx did not start: {nginx_server.error_log}")
        return accepts(port)

    wait_until(answers)
