"""Exits as people write them: names and proxies or tor, in the settings file, a cluster file or a file of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from shoal.fetch.tor.options import TorOptions
from shoal.fetch.tor.torrc import check_torrc

MAX_EXITS = 32
MAX_PROXIES = 10_000  # of one exit
MAX_FILE = 2_000_000  # bytes
EXAMPLE = 'a line such as: office = "http://user:password@proxy.example:3128", or a list of them'
_Option = tuple[Callable[[object], Any], str]  # how it is read, and what it accepts
_OPTIONS: dict[str, _Option] = {
    "sticky": (units.one_of("host", "session", "none"), "host, session or none"),
    "failures": (units.integer(1), "a whole number above 0"),
    "cool_down": (units.seconds(), 'a duration such as "30s"'),
}
_TOR_OPTIONS: dict[str, _Option] = {
    "program": (units.text, "the name or path of a program"),
    "torrc": (lambda value: check_torrc(_torrc_lines(value)), "lines of a torrc, as a text or a list"),
    "bootstrap_timeout": (units.seconds(), 'a duration such as "2m"'),
    "rotate": (units.seconds(zero=True), 'a duration such as "10m", or 0'),
    "new_circuit_after": (units.integer(0), "a whole number, 0 or more"),
}
_KEYS = ("proxies", "file", "tor", *_OPTIONS, *_TOR_OPTIONS)

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
    options = _options(given, _OPTIONS, where)
    if "tor" in given:
        return ExitOptions(name, tor=_read_tor(given, where), **options)
    for key in _TOR_OPTIONS:
        if key in given:
            raise UsageError(f"{where}: {key} is for Tor", hint="tor = true beside it, or leave it out")
    if ("proxies" in given) == ("file" in given):
        raise UsageError(f"{where}: give proxies, a file of them, or tor = true", hint=EXAMPLE)
    if "file" in given:
        named = _file_lines(given["file"], where, folder)
    else:
        named = {f"proxy {number}": text for number, text in enumerate(_texts(given["proxies"], where), 1)}
    return ExitOptions(name, () if [*named.values()] == [DIRECT] else _proxies(named, where, secret), **options)


def _options(given: Mapping[str, object], known: Mapping[str, _Option], where: str) -> dict[str, Any]:
    return {
        key: read_value(parse, given[key], f"{where}: {key}", accepts)
        for key, (parse, accepts) in known.items()
        if key in given
    }


def _read_tor(given: Mapping[str, object], where: str) -> TorOptions:
    if given["tor"] is not True:
        raise UsageError(f"{where}: tor can only be true", hint="leave it out where there is no Tor")
    for key in ("proxies", "file", "failures"):
        if key in given:
            raise UsageError(f"{where}: {key} goes with proxies, and Tor has none", hint="leave it out")
    return TorOptions(**_options(given, _TOR_OPTIONS, where))


def _torrc_lines(value: object) -> list[str]:
    lines = value.splitlines() if isinstance(value, str) else value
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        raise ValueError("not lines")
    return list(lines)


def _texts(value: object, where: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(it, str) and it for it in texts):
        raise UsageError(f"{where} is not understood", hint=EXAMPLE)
    return list(texts)


def _file_lines(value: object, where: str, folder: Path) -> dict[str, str]:
    """By where they stand."""
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
    lines = (line.strip() for line in raw.decode("utf-8-sig", "replace").splitlines())
    found = {
        f"{value}, line {number}": line for number, line in enumerate(lines, 1) if line and not line.startswith("#")
    }
    if not found:
        raise UsageError(f"{where}: {path} has no proxies", hint="a line such as: http://proxy.example:3128")
    return found


def _proxies(texts: Mapping[str, str], where: str, secret: Secret) -> tuple[str, ...]:
    """texts: by what they are called in messages."""
    if len(texts) > MAX_PROXIES:
        raise UsageError(f"{where} has {len(texts):,} proxies: {MAX_PROXIES:,} is the most", hint="leave some out")
    found: dict[str, None] = {}
    for place, text in texts.items():
        try:
            url = _url(text, secret)
            validate_proxy(url)
        except UsageError as error:  # without the line itself: it may hold a login
            raise UsageError(f"{where}: {place}: {error}", hint=error.hint) from None
        found[url] = None
    return tuple(found)


def _url(text: str, secret: Secret) -> str:
    """A proxy as a URL; also as the name of a secret, and as lists are sold: host:port or host:port:user:password."""
    if "://" in text:
        return text
    if ":" not in text and " " not in text:
        url = secret(text)
        if url is None:
            raise UsageError("there is no secret of that name", hint="name it in [secrets] of shoal.toml")
        return url
    parts = text.split(":", 3)
    if len(parts) in (1, 3) or not parts[0] or not parts[1].isdecimal():
        raise UsageError("it cannot be read", hint="http://user:password@host:port, or host:port:user:password")
    host, port, *login = parts
    user = f"{quote(login[0], safe='')}:{quote(login[1], safe='')}@" if login else ""
    return f"http://{user}{host}:{port}"
