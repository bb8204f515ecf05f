"""TorProcess: one tor that this process has started, and that ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import subprocess
from pathlib import Path

from shoal.errors import UsageError
from shoal.fetch.tor.control import ControlFailed, TorControl
from shoal.fetch.tor.options import TorOptions
from shoal.fetch.tor.program import find_tor
from shoal.fetch.tor.status import BootstrapPhase, Circuit, read_bootstrap_phase, read_circuits, read_listener
from shoal.fetch.tor.torrc import CONTROL_PORT_FILE, COOKIE_FILE, torrc_text

START_TIMEOUT = 30.0  # seconds until its control port is open
CLOSE_TIMEOUT = 5.0
POLL_INTERVAL = 0.05
BOOTSTRAP_POLL_INTERVAL = 0.2
MAX_OUTPUT = 4_000  # bytes of its log that are looked at
_port_line = re.compile(r"PORT=127\.0\.0\.1:(\d{1,5})\s*").fullmatch
_complaint = re.compile(r"\[(?:err|warn)\] (.+)").search


class TorFailed(Exception):
    """tor does not start, does not bootstrap, or has ended; the message says what to do."""


class TorProcess:
    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._control: TorControl | None = None
        self.phase = BootstrapPhase()  # as it was when last asked
        self.socks_port = 0  # once it has bootstrapped

    @classmethod
    async def start(cls, options: TorOptions, folder: Path) -> TorProcess:
        """folder: for its files; one that ended there before leaves what it knows of the network."""
        try:
            tor = cls(await asyncio.to_thread(_spawn, find_tor(options.program), options, folder), folder)
        except UsageError as error:
            raise TorFailed(f"{error}; {error.hint}") from error
        except OSError as error:
            raise TorFailed(f"tor cannot be started: {error.strerror}") from error
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await tor._take_control()
        except TimeoutError as error:
            await tor.close()
            raise TorFailed(f"tor did not open its control port within {START_TIMEOUT:.0f} s") from error
        except BaseException:
            await tor.close()
            raise
        return tor

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    async def wait_until_bootstrapped(self, timeout: float) -> None:
        """Raises TorFailed with the phase in which it is stuck."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    if (await self.ask_phase()).is_done:
                        break
                    await asyncio.sleep(BOOTSTRAP_POLL_INTERVAL)
        except TimeoutError as error:
            raise TorFailed(
                f"tor has not bootstrapped within {timeout:.0f} s, it is stuck at {self.phase}; does this machine "
                "reach the Tor network? bridges and the like go to torrc of its exit"
            ) from error
        found = read_listener(await self._ask("net/listeners/socks"))
        if found is None:
            raise TorFailed("tor has bootstrapped, but opens no SOCKS port")
        self.socks_port = found

    async def ask_phase(self) -> BootstrapPhase:
        self.phase = read_bootstrap_phase(await self._ask("status/bootstrap-phase"))
        return self.phase

    async def circuits(self) -> list[Circuit]:
        """Those that carry somebody's streams."""
        return read_circuits(await self._ask("circuit-status"))

    async def new_identity(self) -> None:
        assert self._control is not None
        try:
            await self._control.new_identity()
        except ControlFailed as error:
            raise self._failure(error) from error

    async def close(self) -> None:
        """End it, in any case."""
        if self._control is not None:
            self._control.close()  # it is ours: it ends with the connection
        else:
            self._process.terminate()
        await asyncio.to_thread(self._reap)

    def _reap(self) -> None:
        try:
            self._process.wait(CLOSE_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    async def _take_control(self) -> None:
        while (found := self._control_port_and_cookie()) is None:
            if not self.is_alive:
                raise self._failure(None)
            await asyncio.sleep(POLL_INTERVAL)
        try:
            self._control = await TorControl.open(found[0])
            await self._control.authenticate(found[1])
            await self._control.take_ownership()
        except ControlFailed as error:
            raise self._failure(error) from error

    def _control_port_and_cookie(self) -> tuple[int, bytes] | None:
        """Once both are written; tor moves such files to their places when they are complete."""
        try:
            found = _port_line((self._folder / CONTROL_PORT_FILE).read_text())
            cookie = (self._folder / COOKIE_FILE).read_bytes()
        except OSError:
            return None
        return (int(found[1]), cookie) if found else None

    async def _ask(self, name: str) -> str:
        assert self._control is not None
        try:
            return await self._control.get_info(name)
        except ControlFailed as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception | None) -> TorFailed:
        if self.is_alive:
            return TorFailed(f"tor cannot be controlled: {error}")
        return TorFailed(f"tor has ended with {self._process.returncode}: {self._last_complaint()}")

    def _last_complaint(self) -> str:
        with contextlib.suppress(OSError):
            lines = (self._folder / "log").read_bytes()[-MAX_OUTPUT:].decode("utf-8", "replace").splitlines()
            found = [found[1] for line in lines if (found := _complaint(line)) and "see warnings" not in line]
            if found:
                return "".join(char if char.isprintable() else "?" for char in found[-1])[:300]
        return "it does not say why"


def _spawn(program: str, options: TorOptions, folder: Path) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C is for us, and while we finish our pages tor must live."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for former in (CONTROL_PORT_FILE, COOKIE_FILE):
        (folder / former).unlink(missing_ok=True)
    (folder / "defaults").write_text("")  # not those of the system's tor
    (folder / "torrc").write_text(torrc_text(folder, options.torrc))
    with (folder / "log").open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - the program of this machine's settings
            [program, "--defaults-torrc", str(folder / "defaults"), "-f", str(folder / "torrc")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=folder,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"},
        )
    _lift_memory_limit(process.pid)
    return process


def _lift_memory_limit(pid: int) -> None:
    """Ours is for the parsing of pages."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # no such call on this system; it has ended
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.prlimit(pid, resource.RLIMIT_DATA, (hard, hard))
