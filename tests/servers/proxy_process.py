"""What private proxies have in common: a program that listens at a free port for as long as a test needs it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from wait import HANG, wait_until

from servers.ports import free_port


def find_program(name: str, package: str) -> str:
    """The program; where there is none, tests are skipped on a laptop and fail in CI."""
    if found := shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin"):
        return found
    missing = f"no {name} here: install your system's package {package}"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@contextmanager
def proxy_process(
    name: str, config: Callable[[Path, int], str], command: Callable[[Path, Path], Sequence[str]]
) -> Iterator[str]:
    """config: its text, for a folder of its own and a port; command: for the folder and the file of the text."""
    with tempfile.TemporaryDirectory(prefix=f"shoal-{name}-") as made:
        folder, port = Path(made), free_port()
        folder.chmod(0o755)  # it has a user of its own
        file, errors = folder / "proxy.conf", folder / "output.log"
        file.write_text(config(folder, port))
        with (
            errors.open("wb") as output,
            subprocess.Popen(command(folder, file), stdout=output, stderr=subprocess.STDOUT, cwd=folder) as process,
        ):
            try:
                wait_until(lambda: accepts(port) or process.poll() is not None)
                assert process.poll() is None, errors.read_text()
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()
                try:
                    process.wait(HANG)
                except subprocess.TimeoutExpired:
                    process.kill()


def accepts(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), HANG).close()
        return True
    return False
