"""shoal doctor: checks this machine and the state, each finding with its fix."""

from __future__ import annotations

import asyncio
import platform
import shutil
import sqlite3
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.show import clean, count, document, line, paint, size
from shoal.config import Settings
from shoal.errors import ShoalError
from shoal.queue.base import Promises
from shoal.version import __version__

LIBRARIES = ("uvloop", "pycurl", "selectolax", "ada-url", "msgspec", "parsel")
OPTIONAL = {"uvloop": "pages cost a little more without it"}
FEW_FILES = 1024
LITTLE_DISK = 1_000_000_000
VERY_LITTLE_DISK = 50_000_000


class Finding(msgspec.Struct, frozen=True):
    grade: Literal["ok", "warn", "bad"]
    what: str
    fix: str = ""


@click.command(
    cls=Command,
    examples="""
    shoal doctor
    shoal doctor --json | jq '.findings[] | select(.grade != "ok")'
    """,
)
@as_json
@click_options("look")
def doctor(settings: Settings, as_json: bool) -> int:
    """Check this machine and the state; exit status 1 if something is bad."""
    findings = [_python(), _sqlite(), *_libraries(), _open_files(), *_disk(settings)]
    promises, finding = asyncio.run(_state(settings))
    findings.append(finding)
    if as_json:
        document(_document(findings, promises))
    else:
        _show(findings, promises)
    return 1 if any(finding.grade == "bad" for finding in findings) else 0


def _python() -> Finding:
    words = (
        f"shoal {__version__} on Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    if sys.implementation.name != "cpython":
        return Finding("warn", words, "use CPython: nothing else is tried")
    return Finding("ok", words)


def _sqlite() -> Finding:
    from shoal.queue.sqlite.engine import OLDEST

    words = f"SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return Finding("bad", words, f"use a Python that carries SQLite {needed} or newer")
    return Finding("ok", words)


def _libraries() -> list[Finding]:
    found, findings = [], []
    for name in LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            grade: Literal["warn", "bad"] = "warn" if name in OPTIONAL else "bad"
            findings.append(
                Finding(grade, f"{name} is missing. {OPTIONAL.get(name, '')}".strip(), f"pip install {name}")
            )
    return [Finding("ok", " · ".join(found)), *findings]


def _open_files() -> Finding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FEW_FILES:
        return Finding("ok", f"open files: at most {'any number' if soft < 0 else format(soft, ',')}")
    wanted = min(hard, 65_536) if hard > 0 else 65_536
    return Finding("warn", f"open files: at most {soft:,} per process", f"ulimit -n {wanted}")


def _disk(settings: Settings) -> list[Finding]:
    from shoal.queue.sqlite.engine import NETWORK_FILE_SYSTEMS, file_system

    if settings.state_file is None:
        return []
    folder = _existing(settings.state_file.absolute().parent)
    kind = file_system(folder)
    findings = []
    if kind in NETWORK_FILE_SYSTEMS:
        findings.append(
            Finding(
                "bad",
                f"{folder} is on a network file system ({kind}), where locks cannot be trusted",
                "--queue with a path on a local disk",
            )
        )
    free = shutil.disk_usage(folder).free
    words = f"{size(free)} free at {folder}{f' ({kind})' if kind else ''}"
    fix = "make room, or --queue with a path on another disk"
    grade: Literal["ok", "warn", "bad"] = (
        "bad" if free < VERY_LITTLE_DISK else "warn" if free < LITTLE_DISK else "ok"
    )
    return [*findings, Finding(grade, words, "" if grade == "ok" else fix)]


def _existing(folder: Path) -> Path:
    return folder if folder.is_dir() else _existing(folder.parent)


async def _state(settings: Settings) -> tuple[Promises | None, Finding]:
    """Open the state as every command does; whatever it refuses is the finding."""
    file = settings.state_file
    if file is not None and not file.exists():
        return None, Finding("ok", f"no state yet: {file} is made by the first run")
    from shoal.app import open_queue

    try:
        queue = await open_queue(settings)
    except ShoalError as error:
        return None, Finding("bad", str(error), getattr(error, "hint", ""))
    try:
        runs = await queue.runs(limit=1000)
        words = f"state in {file or settings.queue.partition('://')[0]}: {count(len(runs), 'run')}"
        if file is not None:
            words += f", {size(_bytes(file))}, schema {_schema(file)}"
        return queue.promises, Finding("ok", words)
    except ShoalError as error:
        return queue.promises, Finding("bad", str(error), getattr(error, "hint", ""))
    finally:
        await queue.close()


def _bytes(file: Path) -> int:
    parts = (file, file.with_name(file.name + "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


def _schema(file: Path) -> int:
    db = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    try:
        return int(db.execute("PRAGMA user_version").fetchone()[0])
    finally:
        db.close()


def _show(findings: list[Finding], promises: Promises | None) -> None:
    colours = {"ok": "green", "warn": "yellow", "bad": "red"}
    for finding in findings:
        line(f"  {paint(finding.grade.ljust(4), colours[finding.grade])}  {clean(finding.what)}")
        if finding.fix:
            line(f"        try: {clean(finding.fix)}")
    if promises is not None:
        line()
        line("What this queue promises")
        line(f"  durable  {promises.durable}")
        line(f"  shared   {promises.shared}")
        line("  tasks    executed at least once, recorded at most once")


def _document(findings: list[Finding], promises: Promises | None) -> dict[str, Any]:
    return {
        "ok": all(finding.grade != "bad" for finding in findings),
        "findings": [
            {"grade": finding.grade, "what": finding.what, "fix": finding.fix} for finding in findings
        ],
        "promises": {"durable": promises.durable, "shared": promises.shared} if promises else None,
    }
