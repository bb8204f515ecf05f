"""`shoal backup` and `shoal restore`: everything a queue holds, as of one moment, in a folder; and back.

A backup is a folder with one file of the backend's own kind and a manifest, which is written last: a folder
without one is no backup. A restored queue is marked, and nothing that was leased when the backup was made counts.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from shoal import app
from shoal.commands.action_log import log_command
from shoal.config.load import Settings
from shoal.core.stats import Stats
from shoal.errors import QueueFull, QueueRefused, RunBusy, UsageError
from shoal.queue.backup import QueueBackup
from shoal.queue.base import Queue
from shoal.queue.registry import backend_of
from shoal.runs.identity import checked_stats
from shoal.runs.queue_identity import queue_id
from shoal.runs.restored import record_restore, void_leases
from shoal.store.append_file import sync_folder
from shoal.version import __version__
from shoal.view.formatting import count
from shoal.view.run_state import live_workers

MANIFEST, DATA = "backup.json", "queue"
FORMAT = 1
MAX_MANIFEST = 100_000  # bytes
MAX_RUNS = 100_000
CHUNK = 1 << 20

Say = Callable[[str], None]


class Manifest(msgspec.Struct, frozen=True):
    format: int
    backend: str  # sqlite, postgres, redis
    namespace: str
    edition: int  # of how that backend keeps its data
    version: str  # of shoal
    queue: str  # its identity
    taken_at: int  # UTC microseconds, by the queue's clock: all that was committed until then is in it
    bytes: int
    sha256: str

    @property
    def time(self) -> str:
        return datetime.fromtimestamp(self.taken_at / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class BackupResult(msgspec.Struct, frozen=True):
    folder: str
    manifest: Manifest
    seconds: float


class RestoreResult(msgspec.Struct, frozen=True):
    manifest: Manifest
    runs: int
    unfinished: int  # of them
    open: int  # tasks of these
    records: int  # likewise
    voided: int  # leases of the old time
    replaced: str = ""  # the folder with what was there


async def back_up(settings: Settings, folder: Path, *, max_pause: float) -> BackupResult:
    """Copy what the queue holds to a new folder, while workers go on."""
    backup = _backup_of(settings)
    if settings.state_file is not None and not settings.state_file.exists():
        raise UsageError(f"there is no state file {settings.state_file}", hint="name the queue with --queue")
    began, temporary = time.monotonic(), _partial_folder(folder)
    async with app.opened_queue(settings) as queue:  # also: refused where it is of a newer version
        identity, taken_at = await queue_id(queue), await queue.now()
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True, mode=0o700)
        await backup.save(temporary / DATA, max_pause=max_pause)
        manifest = await asyncio.to_thread(_seal, temporary, settings, backup, identity, taken_at)
        temporary.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise QueueFull(
            f"the backup cannot be written to {folder}: {error.strerror or error}",
            hint="check space and rights there; nothing else was changed",
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return BackupResult(str(folder), manifest, time.monotonic() - began)


async def restore(settings: Settings, folder: Path, *, replace: bool, say: Say) -> RestoreResult:
    """Make the queue what it was when the backup was made; what else is there is backed up first."""
    backup, manifest = _backup_of(settings), read_manifest(folder)
    _refuse_other(settings, backup, manifest)
    await asyncio.to_thread(_verify, folder, manifest)
    replaced = ""
    if not await backup.is_empty():
        if not replace:
            raise UsageError(
                f"{app.queue_label(settings)} is not empty",
                hint="--replace to back up what is there, remove it and restore; or name another queue",
            )
        replaced = await _replace(settings, backup, folder, say)
    await backup.load(folder / DATA)
    async with app.opened_queue(settings) as queue:
        return await _begin_again(queue, manifest, replaced)


async def _begin_again(queue: Queue, manifest: Manifest, replaced: str) -> RestoreResult:
    await record_restore(queue, manifest.taken_at)
    voided = await void_leases(queue)
    runs = await queue.runs(limit=MAX_RUNS)
    unfinished: list[Stats] = [await checked_stats(queue, run) for run in runs if run.state in ("running", "paused")]
    await log_command(queue, "restore", manifest.time)
    return RestoreResult(
        manifest,
        runs=len(runs),
        unfinished=len(unfinished),
        open=sum(stats.open for stats in unfinished),
        records=sum(stats.records for stats in unfinished),
        voided=voided,
        replaced=replaced,
    )


async def _replace(settings: Settings, backup: QueueBackup, folder: Path, say: Say) -> str:
    async with app.opened_queue(settings) as queue:
        if alive := await live_workers(queue, settings):
            raise RunBusy(
                f"{count(len(alive), 'worker')} of this queue {'is' if len(alive) == 1 else 'are'} alive",
                hint="stop them first: shoal drain --all",
            )
    kept = folder.with_name(f"{folder.name}.replaced-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    await back_up(settings, kept, max_pause=float("inf"))
    say(f"What was there is kept in {kept}")
    await backup.remove()
    return str(kept)


def _partial_folder(folder: Path) -> Path:
    if folder.exists():
        raise UsageError(f"{folder} exists already", hint="name a folder that does not, so that no backup is lost")
    return folder.with_name(f".{folder.name}.partial")


def read_manifest(folder: Path) -> Manifest:
    try:
        with (folder / MANIFEST).open("rb") as file:
            manifest = msgspec.json.decode(file.read(MAX_MANIFEST), type=Manifest)
    except FileNotFoundError as error:
        raise UsageError(
            f"{folder} is not a backup: it has no {MANIFEST}", hint="name a folder that `shoal backup` has made"
        ) from error
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{folder / MANIFEST} cannot be read: {error}", hint="use another backup") from error
    if manifest.format > FORMAT:
        raise QueueRefused(f"{folder} was made by a newer shoal ({manifest.version})", hint="upgrade this installation")
    return manifest


def _backup_of(settings: Settings) -> QueueBackup:
    if backend_of(settings.queue).name == "shards":
        raise UsageError(
            "shards cannot be copied as of one moment: links on their way between two of them could be in neither copy",
            hint="stop workers and servers, then back up or restore each shard by itself: --queue URL-OF-THE-SHARD",
        )
    backup = app.open_backup(settings)
    if backup is None:
        raise UsageError(
            f"{app.queue_label(settings)} does not keep the work itself",
            hint="name the queue behind it: --queue postgresql://…, redis://… or a state file",
        )
    return backup


def _refuse_other(settings: Settings, backup: QueueBackup, manifest: Manifest) -> None:
    backend = backend_of(settings.queue)
    if manifest.backend != backend.name:
        raise UsageError(
            f"this is a backup of a queue of the kind {manifest.backend}, and {app.queue_label(settings)} is another",
            hint="restore it to a queue of its kind, and `shoal move` its runs from there",
        )
    if manifest.namespace != backup.namespace:
        raise UsageError(
            f"the backup is of namespace {manifest.namespace}, and the queue's is {backup.namespace}",
            hint=f"?namespace={manifest.namespace} at the end of the queue's URL",
        )
    if manifest.edition > backup.edition:
        raise QueueRefused(
            f"the backup was made by a newer shoal ({manifest.version}: edition {manifest.edition},"
            f" this one knows {backup.edition})",
            hint="upgrade this installation",
        )


def _seal(folder: Path, settings: Settings, backup: QueueBackup, identity: str, taken_at: int) -> Manifest:
    """Write the manifest, when all else is on disk."""
    data = folder / DATA
    data.chmod(0o600)
    with data.open("rb") as file:
        os.fsync(file.fileno())
    manifest = Manifest(
        FORMAT,
        backend_of(settings.queue).name,
        backup.namespace,
        backup.edition,
        __version__,
        identity,
        taken_at,
        data.stat().st_size,
        _digest(data),
    )
    with (folder / MANIFEST).open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)
    return manifest


def _verify(folder: Path, manifest: Manifest) -> None:
    data = folder / DATA
    if not data.exists() or data.stat().st_size != manifest.bytes or _digest(data) != manifest.sha256:
        raise QueueRefused(f"{data} is not what {MANIFEST} says: it is damaged", hint="use another backup")


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
