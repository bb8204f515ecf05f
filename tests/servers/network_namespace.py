"""A network namespace for tests: nothing in it reaches anything but its own loopback interface."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_CLONE_NEWNET = 0x40000000
ADDRESSES = "10.9.0"  # the first numbers of those that it has beside 127.0.0.1
_HOLD = f"ip link set lo up && ip route add local {ADDRESSES}.0/24 dev lo && echo up && exec cat"


class NetworkNamespace:
    """It lives as long as a process holds it."""

    def __init__(self, holder: subprocess.Popen[bytes]) -> None:
        self._file = Path(f"/proc/{holder.pid}/ns/net")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, the processes and threads that it starts, and the sockets that it opens are inside."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        inside = os.open(self._file, os.O_RDONLY)
        try:
            _set_namespace(inside)
            yield
        finally:
            _set_namespace(own)
            os.close(inside)
            os.close(own)

    @contextmanager
    def reaching(self, port: int) -> Iterator[None]:
        """One port of this machine's loopback interface, and no other, is at the same place inside."""
        with self.entered():
            listener = socket.create_server(("127.0.0.1", port))
        loop = asyncio.new_event_loop()
        forwarding = threading.Thread(target=loop.run_until_complete, args=(_forward(listener, port),))
        forwarding.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
            forwarding.join()
            loop.close()


async def _forward(listener: socket.socket, port: int) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))

    with suppress(asyncio.CancelledError):
        async with await asyncio.start_server(handle, sock=listener) as server:
            await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except (ConnectionError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


@contextmanager
def network_namespace() -> Iterator[NetworkNamespace]:
    """Of root's; other users cannot enter one from outside."""
    if os.geteuid() != 0:
        pytest.skip("only root enters network namespaces")
    command = ["unshare", "--net", "sh", "-c", _HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        if holder.stdout.readline() != b"up\n":
            pytest.skip("there are no network namespaces here")
        try:
            yield NetworkNamespace(holder)
        finally:
            holder.stdin.close()


def _set_namespace(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
