"""Exits as people write them: names and proxies, in the settings file, a cluster file or a file of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from shoal.config.setting import read_value
from shoal.core import units
from shoal.core.capability import MAX_EXIT_NAME
from shoal.core.lane import DIRECT, is_exit_name
from shoal.errors import UsageError
from shoal.fetch.exits.options import ExitOptions
from shoal.fetch.proxy import validate_proxy

MAX_EXITS = 32
MAX_PROXIES = 10_000  # of one exit
MAX_FILE = 2_000_000  # bytes
EXAMPLE = 'a line such as: office = "http://user:password@proxy.example:3128", or a list of them'
_OPTIONS: dict[str, tuple[Callable[[object], Any], str]] = {
    "sticky": (units.one_of("host", "session", "none"), "host, session or none"),
    "failures": (units.integer(1), "a whole number above 0"),
    "cool_down": (units.seconds(), 'a duration such as "30s"'),
}
_KEYS = ("proxies", "file", *_OPTIONS)

Secret = Callable[[str], str | None]  # the value of a secret, by its name


def read_exits(table: object, where: str, folder: Path, secret: Secret) -> dict[str, ExitOptions]:
    """The exits of a table by name. where: for messages. folder: where files that it names are looked for."""
    if not isinstance(table, Mapping):
        raise UsageError(f"{where} must hold names and proxies", hint=EXAMPLE)
    if len(table) > MAX_EXITS:
        raise UsageError(f"{where} has {len(table)} exits: {MAX_EXITS} is the most", hint="combine some into one list")
    return {
        str(name): _read_exit(str(name), value, f"{where}: {name}", folder, secret) for name, value in table.items()
    }


def _read_exit(name: str, value: object, where: str, folder: Path, secret: Secret) -> ExitOptions:
    if not is_exit_name(name) or len(name) > MAX_EXIT_NAME or name == DIRECT:
        hint = f"up to {MAX_EXIT_NAME} small letters, digits, dots, dashes and underscores; {DIRECT} is taken"
        raise UsageError(f"{where}: that cannot be the name of an exit", hint=hint)
    given = dict(value) if isinstance(value, Mapping) else {"proxies": value}
    for key in given:
        if key not in _KEYS:
            raise UsageError(f"{where}: {key!r} is not known", hint=f"known are: {', '.join(_KEYS)}")
    if ("proxies" in given) == ("file" in given):
        raise UsageError(f"{where}: give either proxies or a file of them", hint=EXAMPLE)
    texts = _file_lines(given["file"], where, folder) if "file" in given else _texts(given["proxies"], where)
    options = {
        key: read_value(parse, given[key], f"{where}: {key}", accepts)
        for key, (parse, accepts) in _OPTIONS.items()
        if key in given
    }
    return ExitOptions(name, () if texts == [DIRECT] else _proxies(texts, where, secret), **options)


def _texts(value: object, where: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(it, str) and it for it in texts):
        raise UsageError(f"{where} is not understood", hint=EXAMPLE)
    return list(texts)


def _file_lines(value: object, where: str, folder: Path) -> list[str]:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}: file must be the name of a file", hint='a line such as: file = "proxies.txt"')
    path = folder / value
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
    except OSError as error:
        raise UsageError(f"{where}: {path} cannot be read: {error.strerror}", hint="check its name") from error
    if len(raw) > MAX_FILE:
        raise UsageError(f"{where}: {path} is larger than {MAX_FILE:,} bytes", hint="is it a list of proxies?")
    lines = (line.strip() for line in raw.decode("utf-8", "replace").splitlines())
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise UsageError(f"{where}: {path} has no proxies", hint="a line such as: http://proxy.example:3128")
    return found


def _proxies(texts: Sequence[str], where: str, secret: Secret) -> tuple[str, ...]:
    if len(texts) > MAX_PROXIES:
        raise UsageError(f"{where} has {len(texts):,} proxies: {MAX_PROXIES:,} is the most", hint="leave some out")
    found: dict[str, None] = {}
    for number, text in enumerate(texts, 1):
        try:
            url = _url(text, secret)
            validate_proxy(url)
        except UsageError as error:  # without the line itself: it may hold a login
            raise UsageError(f"{where}: proxy {number}: {error}", hint=error.hint) from None
        found[url] = None
    return tuple(found)


def _url(text: str, secret: Secret) -> str:
    """A proxy as a URL; also as the name of a secret, and as lists are sold: host:port or host:port:user:password."""
    if "://" in text:
        return text
    if ":" not in text:
        url = secret(text)
        if url is None:
            raise UsageError("there is no secret of that name", hint="name it in [secrets] of shoal.toml")
        return url
    host, port, *login = text.split(":", 3)
    if not host or not port.isdecimal() or len(login) == 1:
        raise UsageError("it cannot be read", hint="http://user:password@host:port, or host:port:user:password")
    user = f"{quote(login[0], safe='')}:{quote(login[1], safe='')}@" if login else ""
    return f"http://{user}{host}:{port}"
