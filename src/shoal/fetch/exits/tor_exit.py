"""TorExit: the tor of one exit in this process, started when first needed, and whose requests share a circuit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from shoal.errors import FetchFailed
from shoal.fetch.exits.options import ExitOptions
from shoal.fetch.process_folder import ProcessFolder
from shoal.fetch.tor.circuit_keys import CircuitKeys
from shoal.fetch.tor.options import TorOptions
from shoal.fetch.tor.process import TorFailed, TorProcess
from shoal.fetch.tor.status import Circuit

log = logging.getLogger("shoal.fetch")

LOOK_INTERVAL = 5.0  # seconds between two looks at its circuits
MAX_COOL_DOWN = 600.0
MAX_DOUBLINGS = 5


@dataclass(frozen=True, slots=True)
class TorState:
    """As it is now."""

    is_ready: bool = False
    circuits: int = 0
    phase: str = ""  # while it is started


class TorExit:
    def __init__(self, exit: ExitOptions, options: TorOptions, clock: Callable[[], float]) -> None:
        self._name = exit.name
        self._options = options
        self._cool_down = exit.cool_down
        self._clock = clock
        self._keys = CircuitKeys(
            exit.sticky, options.rotate, options.new_circuit_after, make_key=lambda: secrets.token_hex(8)
        )
        self._folder: ProcessFolder | None = None
        self._tor: TorProcess | None = None
        self._starting: asyncio.Task[TorProcess] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._circuits = 0
        self._failures = 0  # in a row, of starts
        self._failed_until = 0.0
        self._failure = ""

    async def proxy_url(self, session: str, host: str) -> str:
        """tor's SOCKS port with a login that is the key of a circuit. Raises FetchFailed (exit)."""
        tor = await self._ready_tor()
        key = self._keys.key(session, host, self._clock())
        return f"socks5h://{key}:{self._name}@127.0.0.1:{tor.socks_port}"

    def note_answer(self, session: str, host: str, *, is_refusal: bool) -> None:
        if self._keys.note_answer(session, host, is_refusal=is_refusal):
            log.info("tor_new_circuit", extra={"exit": self._name, "host": host, "why": "refused"})

    async def new_circuit(self, session: str, host: str) -> None:
        """For a session, a host, or both; with neither for all."""
        if session or host:
            self._keys.renew(session, host)
            return
        self._keys.renew_all()
        if self._tor is not None and self._tor.is_alive:
            with contextlib.suppress(TorFailed):  # then it is started anew, with new circuits
                await self._tor.new_identity()

    async def circuits(self) -> list[Circuit]:
        """Raises FetchFailed (exit)."""
        try:
            return await (await self._ready_tor()).circuits()
        except TorFailed as error:
            raise FetchFailed("exit", str(error)) from error

    def state(self) -> TorState:
        tor = self._tor
        if tor is None or not tor.is_alive:
            return TorState()
        if not tor.socks_port:
            return TorState(phase=str(tor.phase))
        return TorState(True, self._circuits)

    async def close(self) -> None:
        for task in (self._looking, self._starting):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        tor, self._tor = self._tor, None
        if tor is not None:
            await tor.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(folder.close)

    async def _ready_tor(self) -> TorProcess:
        tor = self._tor
        if tor is not None and tor.socks_port and tor.is_alive:
            return tor
        if self._starting is None:
            wait = self._failed_until - self._clock()
            if wait > 0:
                raise FetchFailed("exit", f"{self._failure}; it is tried again in {wait:.0f} s", after=max(1.0, wait))
            self._starting = asyncio.create_task(self._start(), name=f"tor-{self._name}")
            self._starting.add_done_callback(self._note_start)
        try:
            return await asyncio.shield(self._starting)  # whoever gives up does not end it for the others
        except TorFailed as error:
            wait = max(1.0, self._failed_until - self._clock())
            raise FetchFailed("exit", f"the exit {self._name}: {error}", after=wait) from error

    async def _start(self) -> TorProcess:
        await self._end_former()
        if self._folder is None:
            try:
                self._folder = await asyncio.to_thread(ProcessFolder.make, "tor")
            except OSError as error:
                raise TorFailed(f"there is no folder for tor: {error.strerror}: {error.filename}") from error
        self._tor = tor = await TorProcess.start(self._options, self._folder.path / self._name)
        log.info("tor_started", extra={"exit": self._name, "pid": tor.pid})
        try:
            await tor.wait_until_bootstrapped(self._options.bootstrap_timeout)
        except TorFailed:
            await tor.close()
            raise
        log.info("tor_ready", extra={"exit": self._name, "pid": tor.pid})
        self._looking = asyncio.create_task(self._look(tor), name=f"tor-{self._name}-circuits")
        return tor

    async def _end_former(self) -> None:
        if self._tor is None:
            return
        log.warning("tor_ended", extra={"exit": self._name, "pid": self._tor.pid})
        if self._looking is not None:
            self._looking.cancel()
        await self._tor.close()
        self._tor = None
        self._keys.renew_all()

    def _note_start(self, task: asyncio.Task[TorProcess]) -> None:
        self._starting = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._failures, self._failure = 0, ""
            return
        pause = min(self._cool_down * 2.0 ** min(self._failures, MAX_DOUBLINGS), MAX_COOL_DOWN)
        self._failures += 1
        self._failed_until = self._clock() + pause
        self._failure = f"the exit {self._name}: {error}"
        log.warning("tor_failed", extra={"exit": self._name, "why": str(error)})

    async def _look(self, tor: TorProcess) -> None:
        """What is counted is told without asking: statuses of workers do not wait for tor."""
        with contextlib.suppress(TorFailed):
            while True:
                self._circuits = len(await tor.circuits())
                await asyncio.sleep(LOOK_INTERVAL)
