"""Result location: where the records of a queue go, written in the queue so that any client finds them.

A password is never written there: a store that needs one is named by whoever knows it. And whoever can write
to the queue can write anything there, so what it says is not opened just like that: see `trusted_store`.
"""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from shoal.config.load import Settings
from shoal.errors import ActionRequired, StoreRefused
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Documents
from shoal.store.results.base import ResultBackend, open_results

_NAME = "results"
_FILE_PREFIX = "sqlite:///"
_POSTGRES = ("postgresql", "postgres")
_POSTGRES_PORT = "5432"
_NAME_IT = "if that is right, name it yourself: SHOAL_STORE or store in shoal.toml, or connect(store=…)"


class ResultLocation(msgspec.Struct, frozen=True):
    url: str  # without a password
    host: str = ""  # of a file: the machine that has it


async def announce_results(queue: Documents, store: ResultBackend) -> None:
    """Say in the queue where its records go; nothing is written where it says so already."""
    host = socket.gethostname() if store.location.startswith(_FILE_PREFIX) else ""
    text = msgspec.json.encode(ResultLocation(store.location, host)).decode()
    while (known := await queue.document(kinds.QUEUE, _NAME)) is None or known.text != text:
        await queue.compare_and_swap(kinds.QUEUE, _NAME, text, known.version if known else 0)


class ResultFinder:
    """Opens the result store of a queue: the one that was named, else the one that the queue tells of."""

    def __init__(self, queue: Documents, settings: Settings) -> None:
        self._queue = queue
        self._settings = settings
        self._store: ResultBackend | None = None

    async def find(self) -> ResultBackend | None:
        """The store; None as long as no records have gone to one."""
        if self._store is None:
            named = self._settings.store
            self._store = await open_results(named) if named else await self._open_announced()
        return self._store

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()
            self._store = None

    async def _open_announced(self) -> ResultBackend | None:
        document = await self._queue.document(kinds.QUEUE, _NAME)
        if document is None:
            return None
        try:
            found = msgspec.json.decode(document.text, type=ResultLocation)
        except msgspec.DecodeError as error:
            raise StoreRefused(
                "the queue says where its results are, but that is not understood here", hint=_NAME_IT
            ) from error
        url = trusted_store(found, self._settings)
        try:
            return await open_results(url)
        except ActionRequired as error:
            raise StoreRefused(
                f"the results are in {_shown(found.url)}, which cannot be opened from here: {error}",
                hint='name it with its password: connect(store="postgresql://…"), or SHOAL_STORE',
            ) from error


def trusted_store(found: ResultLocation, settings: Settings) -> str:
    """The URL to open for what a queue says; raises StoreRefused unless nothing can be wrong with it.

    A file below the state folder, or the server of the queue itself, which is asked as the queue is.
    """
    if found.url.startswith(_FILE_PREFIX):
        return _trusted_file(found, settings)
    try:
        if url := _on_queue_server(found.url, settings.queue):
            return url
    except ValueError:
        pass  # no URL at all
    raise StoreRefused(
        f"the queue says that its results are in {_shown(found.url)}: this machine's settings do not name"
        " that store, and it is not on the queue's own server",
        hint=_NAME_IT,
    )


def _trusted_file(found: ResultLocation, settings: Settings) -> str:
    file, shown = found.url.removeprefix(_FILE_PREFIX), _shown(found.url.removeprefix(_FILE_PREFIX))
    if found.host != socket.gethostname():
        raise _elsewhere(shown, _shown(found.host))
    folder = settings.state_folder.resolve()
    try:
        path = Path(file).resolve()
        is_inside = path.is_relative_to(folder) and "?" not in file
    except (OSError, ValueError, RuntimeError):  # links in a circle, a name that no file can have
        is_inside = False
    if not is_inside:
        raise StoreRefused(
            f"the queue says that its results are in the file {shown}: this machine's settings do not name"
            f" that store, and it is not below {folder}",
            hint=_NAME_IT,
        )
    if not path.exists():  # opening it would create an empty one
        raise _elsewhere(shown, _shown(found.host))
    return f"{_FILE_PREFIX}{path}"


def _elsewhere(file: str, host: str) -> StoreRefused:
    return StoreRefused(
        f"the results are in the file {file} on {host}, which is not on this machine",
        hint="read them there, or give the workers a store that all machines reach: --store postgresql://…",
    )


def _on_queue_server(url: str, queue: str) -> str:
    """A store on the PostgreSQL server of the queue, as the queue logs in there; "" if it is elsewhere.

    Of the URL only database and namespace count: its other words could name servers, files and logins.
    """
    there, ours = urlsplit(url), urlsplit(queue)
    if there.scheme not in _POSTGRES or ours.scheme not in _POSTGRES:
        return ""
    theirs, words = dict(parse_qsl(there.query)), dict(parse_qsl(ours.query, keep_blank_values=True))
    if _servers(there.netloc, theirs) != _servers(ours.netloc, words) or "/" in there.path[1:]:
        return ""
    words = {name: value for name, value in words.items() if name not in ("namespace", "listen", "dbname", "database")}
    if namespace := theirs.get("namespace"):
        words["namespace"] = namespace
    return f"postgresql://{ours.netloc}{there.path}?{urlencode(words)}"


def _servers(netloc: str, words: dict[str, str]) -> list[tuple[str, str]]:
    """Hosts and ports; the folder of a socket is a host, too."""
    hosts = netloc.rpartition("@")[2] or words.get("host", "")
    found: list[tuple[str, str]] = []
    for text in hosts.split(","):
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal():
            host, port = text, words.get("port", _POSTGRES_PORT)
        found.append((host.lower(), port))
    return found


def _shown(text: str) -> str:
    """What a stranger may have written, for a message."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:300])
