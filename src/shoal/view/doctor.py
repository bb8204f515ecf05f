"""The checks of `shoal doctor`: this machine, the queue and the store, as a worker would find them."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from shoal.config.load import Settings
from shoal.errors import ActionRequired, ShoalError
from shoal.files.file_system import file_system
from shoal.logs import redact
from shoal.queue.base import Finding, Promises, Queue
from shoal.queue.registry import BACKENDS, find_backend
from shoal.version import __version__, install_hint
from shoal.view.browser_check import browser_finding
from shoal.view.celery_checks import celery_findings, has_celery
from shoal.view.exits import exit_findings
from shoal.view.failover_checks import failover_findings
from shoal.view.formatting import count
from shoal.view.rabbitmq import broker_findings, has_broker
from shoal.view.restore_checks import restore_findings
from shoal.view.work_checks import work_findings

LIBRARIES = ("uvloop", "pycurl", "selectolax", "ada-url", "msgspec", "parsel")
OPTIONAL = {"uvloop": "pages cost slightly more without it"}
EXTRAS = {backend.extra: backend.module for backend in BACKENDS if backend.extra} | {
    "parquet": "pyarrow",
    "xlsx": "openpyxl",
    "browser": "playwright",
    "sessions": "cryptography",
    "pandas": "pandas",
    "polars": "polars",
}
FILES_PER_PAGE, FILES_BESIDE = 4, 100  # a page may hold connections to a proxy, a host and robots.txt
LITTLE_DISK, VERY_LITTLE_DISK = 1_000_000_000, 50_000_000
TIMEOUT = 15.0
PINGS = 5
SLOW_ROUND_TRIP = 0.05  # seconds there and back
CLOCK_NOTED, CLOCK_WRONG = 2.0, 60.0
UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (1000, "kB"))


class DoctorReport(msgspec.Struct, frozen=True):
    findings: tuple[Finding, ...]
    promises: Promises | None = None  # of the queue, if it could be opened
    behind: str = ""  # what a server that was asked keeps the queue in


async def run_checks(settings: Settings) -> DoctorReport:
    findings = [_python(), *_backends(settings), *_libraries(), _extras(), _open_files(settings)]
    findings.append(browser_finding(settings))
    findings += exit_findings(settings)
    findings += _folders(settings)
    found = await _queue(settings)
    findings += found.findings
    if has_broker(settings):
        findings += await broker_findings(settings)
    if has_celery(settings):
        findings += await celery_findings()
    if settings.store:
        findings.append(await _store(settings))
    return DoctorReport(tuple(findings), found.promises, found.behind)


# this machine


def _python() -> Finding:
    words = f"shoal {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if sys.implementation.name != "cpython":
        return Finding("python", "warning", words, "use CPython: nothing else is tested")
    return Finding("python", "ok", words)


def _backends(settings: Settings) -> Iterator[Finding]:
    """What each kind of queue needs of this machine, whichever of them is in use."""
    own, folder = find_backend(settings.queue), _existing(settings.state_folder.absolute())
    for backend in BACKENDS:
        yield from backend.checks(folder if backend is own else None)


def _libraries() -> Iterator[Finding]:
    yield Finding("libraries", "ok", " · ".join(f"{name} {v}" for name in LIBRARIES if (v := _version(name))))
    for name in LIBRARIES:
        if not _version(name):
            words = f"{name} is missing. {OPTIONAL.get(name, '')}".strip()
            yield Finding("libraries", "warning" if name in OPTIONAL else "wrong", words, f"pip install {name}")


def _extras() -> Finding:
    """Those that the queue or the store needs are missed when these are opened."""
    have = [f"{extra} ({name} {v})" for extra, name in EXTRAS.items() if (v := _version(name))]
    lack = [extra for extra, name in EXTRAS.items() if not _version(name)]
    words = f"extras: {', '.join(have) or 'none'}"
    if not lack:
        return Finding("extras", "ok", words)
    return Finding("extras", "note", f"{words}; not installed: {', '.join(lack)}", f"if needed, {install_hint(*lack)}")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _open_files(settings: Settings) -> Finding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.concurrency * FILES_PER_PAGE + FILES_BESIDE
    workers = settings.workers or os.cpu_count() or 1
    words = (
        f"open files: {'any number' if soft == resource.RLIM_INFINITY else format(soft, ',')} per process,"
        f" {needed:,} needed ({workers} × {settings.concurrency} pages at once)"
    )
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return Finding("open files", "ok", words)
    wanted = max(needed, 65_536)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return Finding("open files", "wrong", words, f"ulimit -n {wanted if hard < 0 else min(hard, wanted)}")
    fewer = max(1, (hard - FILES_BESIDE) // FILES_PER_PAGE)
    return Finding("open files", "wrong", words, f"--concurrency {fewer}, or have root raise the limit to {wanted}")


def _folders(settings: Settings) -> Iterator[Finding]:
    folder = settings.state_folder.absolute()
    there = _existing(folder)
    kind = file_system(there)
    yield _writable(folder, there)
    if settings.state_file is None or not settings.state_file.exists():  # else the queue tells of its disk
        fix = "free some space, or --queue with a path on another disk"
        yield _disk_space("disk", there, f" ({kind})" if kind else "", fix)
    yield _disk_space(
        "temporary files", Path(tempfile.gettempdir()), "", "free some space, or set TMPDIR to another disk"
    )


def _writable(folder: Path, there: Path) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return Finding(
            "state folder",
            "wrong",
            f"{folder} cannot be written: {error.strerror}",
            "run from a folder you may write to, or check its owner and mode",
        )
    return Finding("state folder", "ok", f"{folder} can be written")


def _disk_space(what: str, folder: Path, more: str, fix: str) -> Finding:
    free = shutil.disk_usage(folder).free
    words = f"{_size(free)} free at {folder}{more}"
    if free < VERY_LITTLE_DISK:
        return Finding(what, "wrong", words, fix)
    return Finding(what, "warning", words, fix) if free < LITTLE_DISK else Finding(what, "ok", words)


def _existing(folder: Path) -> Path:
    return folder if folder.is_dir() else _existing(folder.parent)


def _size(number: int) -> str:
    return next((f"{number / one:.1f} {unit}" for one, unit in UNITS if number >= one), f"{number} B")


# the queue


async def _queue(settings: Settings) -> DoctorReport:
    """Open the queue as every command does; whatever it refuses is the finding."""
    from shoal.app import open_queue

    file = settings.state_file
    if file is not None and not file.exists():
        return DoctorReport((Finding("queue", "ok", f"no state yet: {file} is created by the first run"),))
    where = str(file or redact(settings.queue))
    try:
        async with asyncio.timeout(TIMEOUT):
            queue = await open_queue(settings, hurry=True)
    except TimeoutError:
        return DoctorReport((_timed_out("queue", where),))
    except ShoalError as error:
        return DoctorReport((finding_from_error("queue", error),))
    try:
        async with asyncio.timeout(TIMEOUT):
            found = [finding async for finding in _queue_findings(queue, where, settings)]
    except TimeoutError:
        found = [_timed_out("queue", where)]
    except ShoalError as error:
        found = [finding_from_error("queue", error)]
    finally:
        await queue.close()
    return DoctorReport(tuple(found), queue.promises, getattr(queue, "backend", ""))


async def _queue_findings(queue: Queue, where: str, settings: Settings) -> AsyncIterator[Finding]:
    runs = await queue.runs(limit=1000)
    number = f"{len(runs):,} {'run' if len(runs) == 1 else 'runs'}"
    yield Finding("queue", "ok", f"state in {where}: {number}")
    told = await queue.diagnose()
    if settings.state_file is None:
        told += [one for one in await _latency_and_clock(queue) if one.what not in {known.what for known in told}]
    for finding in told:
        yield finding
    async for finding in failover_findings(queue, runs):
        yield finding
    for finding in await _workers(queue, settings):
        yield finding
    async for finding in work_findings(queue, settings):
        yield finding
    async for finding in restore_findings(queue, settings):
        yield finding
    if settings.store:
        waiting = 0
        for run in runs:
            stats = await queue.stats(run.id)
            waiting = max(waiting, stats.records - stats.trimmed)
        if waiting > settings.outbox_limit:
            yield Finding(
                "outbox",
                "warning",
                f"{waiting:,} records of a run are waiting for the store: workers wait, too",
                "check that the store takes records, or raise --outbox-limit",
            )


async def _latency_and_clock(queue: Queue) -> list[Finding]:
    """How far the server is, and how far apart the clocks are."""
    trips, apart = [], 0.0
    for _ in range(PINGS):
        began, at = time.monotonic(), time.time()
        now = await queue.now()
        trips.append(time.monotonic() - began)
        apart = now / 1e6 - (at + trips[-1] / 2)
    return [_latency(statistics.median(trips)), _clock(apart)]


def _latency(trip: float) -> Finding:
    words = f"{trip * 1000:.1f} ms round trip to the server"
    if trip < SLOW_ROUND_TRIP:
        return Finding("latency", "ok", words)
    return Finding("latency", "note", words, "run workers closer to it, or use a larger --batch-size")


def _clock(apart: float) -> Finding:
    words = f"clock {abs(apart) * 1000:,.0f} ms {'behind' if apart > 0 else 'ahead of'} the server's"
    if abs(apart) < CLOCK_NOTED:
        return Finding("clock", "ok", words)
    fix = "set this machine's clock (NTP); work is not affected: only the server's clock counts"
    return Finding("clock", "warning" if abs(apart) >= CLOCK_WRONG else "note", words, fix)


async def _workers(queue: Queue, settings: Settings) -> list[Finding]:
    statuses, now = await queue.workers(), await queue.now()
    alive = [status for status in statuses if now - status.seen_at < settings.stale_after * 1e6]
    if not statuses:
        return []
    findings = [Finding("workers", "ok", f"{len(alive):,} of {count(len(statuses), 'worker')} alive")]
    versions = sorted({status.version for status in alive})
    if len(versions) > 1:
        findings.append(
            Finding(
                "workers",
                "note",
                f"workers of different versions: {', '.join(versions)}",
                "upgrade the older ones; adjacent versions can work together meanwhile",
            )
        )
    return findings


# the store


async def _store(settings: Settings) -> Finding:
    from shoal.store.results.base import open_results

    try:
        async with asyncio.timeout(TIMEOUT):
            store = await open_results(settings.store)
            try:
                return Finding("store", "ok", f"results in {store.label}: {await store.count():,}")
            finally:
                await store.close()
    except TimeoutError:
        return _timed_out("store", str(redact(settings.store)))
    except ShoalError as error:
        return finding_from_error("store", error)


# what cannot be reached


def _timed_out(what: str, where: str) -> Finding:
    return Finding(
        what,
        "wrong",
        f"{where} does not answer within {TIMEOUT:.0f} s",
        "check the port, and a firewall in between; something else may listen there",
    )


def finding_from_error(what: str, error: ShoalError) -> Finding:
    """An error as a finding, with the likely reason for a server that cannot be reached."""
    hint = error.hint if isinstance(error, ActionRequired) else ""
    why, fix = _reason(error)
    return Finding(what, "wrong", f"{error}: {why}" if why else str(error), fix or hint)


def _reason(error: BaseException) -> tuple[str, str]:
    cause: BaseException | None = error
    while cause is not None:
        for kind, why, fix in _REASONS:
            if isinstance(cause, kind):
                return why, fix
        cause = cause.__cause__ or cause.__context__
    return "", ""


# The first that fits: some of these are kinds of the others.
_REASONS: tuple[tuple[type[BaseException], str, str], ...] = (
    (socket.gaierror, "the host's name is not known", "check its spelling and this machine's DNS"),
    (ssl.SSLCertVerificationError, "its certificate is not trusted", "check the host name and its CA"),
    (ssl.SSLError, "TLS failed", "check whether the server uses TLS: rediss:// or redis://"),
    (ConnectionRefusedError, "nothing listens there", "start the server, or check host and port"),
    (FileNotFoundError, "there is no such socket", "start the server, or check the path"),
    (PermissionError, "this user may not use that socket", "check its owner and mode"),
    (TimeoutError, "it does not answer", "check host and port, and a firewall in between"),
    (ConnectionResetError, "it closed the connection", "check that a server of that kind listens there"),
)
