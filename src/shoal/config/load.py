"""Settings: one frozen value, and the only reader of the environment and of the settings file.

Every setting is declared once, in `Settings`; its flag (`--max-pages`), its variable
(`SHOAL_MAX_PAGES`) and its key in the settings file (`max_pages`) follow from the field's name.
Precedence: flag > environment > settings file > the scraper's own settings > default. RABBITMQ_HOST and REDIS_HOST
are a default of the queue.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.config.server_variables import queue_from_variables
from shoal.config.setting import PREFIX, Setting
from shoal.config.settings import SETTINGS, SETTINGS_FILE, STATE_FILE, STATE_FOLDER, Settings
from shoal.core.capability import exit_capability
from shoal.core.session_options import session_capability
from shoal.errors import UsageError

__all__ = [
    "PREFIX",
    "SETTINGS",
    "SETTINGS_FILE",
    "STATE_FILE",
    "STATE_FOLDER",
    "Setting",
    "Settings",
    "load",
    "with_defaults",
]

SECRET_PREFIX = "secret_"  # noqa: S105 - SHOAL_SECRET_SHOP is the secret called "shop"
_SECRET_EXAMPLE = 'a line such as: shop = "user:password"'  # noqa: S105
_BOUND_EXAMPLE = 'a line such as: shop = {value = "user:password", hosts = ["shop.example", "*.shop.example"]}'
# A host, all below one, or one with its port.
is_host_pattern = re.compile(
    r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?(:[0-9]{1,5})?|\[[0-9a-f:.]+\](:[0-9]{1,5})?"
).fullmatch

_TABLES = ("secrets", "exits", "sessions")  # of the settings file, which are no settings themselves

Layer = dict[str, tuple[Any, str]]  # name -> (parsed value, where it was given)


def load(
    flags: Mapping[str, object] | None = None, *, env: Mapping[str, str] | None = None, file: str | None = None
) -> Settings:
    """Read all layers into one value; `flags` holds what was given on the command line, unparsed."""
    env = os.environ if env is None else env
    chosen: Layer = {}
    path = file or env.get(PREFIX + "CONFIG") or ""
    for layer in (_from_variables(env), _from_file(path), _from_env(env), _from_flags(flags)):
        if "rate" in layer:
            chosen.pop("delay", None)
        elif "delay" in layer:
            chosen.pop("rate", None)
        chosen |= layer
    secrets, secret_hosts = _secrets(path, env)
    named = (Path(path).name,) if path else ()
    settings = _apply(Settings(secrets=secrets, secret_hosts=secret_hosts, named_files=named), chosen)
    place, tables = Path(path or SETTINGS_FILE), _read_file(path)
    return with_sessions(with_exits(settings, tables.get("exits"), place), tables.get("sessions"), place)


def with_sessions(settings: Settings, table: object, file: Path) -> Settings:
    """The same with the sessions of a file; its workers have them."""
    if table is None:
        return settings
    from shoal.config.sessions import read_sessions  # late: few have any

    found = dict(settings.sessions) | read_sessions(table, f"{file.name}: sessions", settings.secret_hosts)
    has = tuple(dict.fromkeys((*settings.has, *map(session_capability, found))))
    return replace(settings, sessions=found, has=has)


def with_exits(settings: Settings, table: object, file: Path) -> Settings:
    """The same with the exits of a file, and of the one that the settings name; its workers have them."""
    if table is None and not settings.exits_file:
        return settings
    from shoal.config.exits import read_exits  # late: few have any

    def secret(name: str) -> str | None:
        return settings.secrets.get(name.lower())

    found = dict(settings.exits)
    if table is not None:
        found |= read_exits(table, f"{file.name}: exits", file.parent, secret)
    if settings.exits_file:
        own = Path(settings.exits_file)
        found |= read_exits(read_document(own, "file of exits"), own.name, own.parent, secret)
    has = tuple(dict.fromkeys((*settings.has, *map(exit_capability, found))))
    return replace(settings, exits=found, has=has)


def with_defaults(settings: Settings, values: Mapping[str, object], owner: str) -> Settings:
    """The same with a scraper's own settings below what a person gave."""
    layer = _layer(values, lambda name: f"{owner}: {name}")
    taken = set(settings.sources)
    if taken & {"delay", "rate"}:
        taken |= {"delay", "rate"}
    return _apply(settings, {name: pair for name, pair in layer.items() if name not in taken})


def _secrets(path: str, env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Logins, proxies and the like by name, and the hosts that some of them are for alone.

    [secrets] in the settings file, SHOAL_SECRET_NAME above it.
    """
    found: dict[str, str] = {}
    hosts: dict[str, tuple[str, ...]] = {}
    table = _read_file(path).get("secrets", {})
    if not isinstance(table, dict):
        raise UsageError("[secrets] must hold names and texts", hint=_SECRET_EXAMPLE)
    for given, value in table.items():
        name = str(given).lower()
        if isinstance(value, dict):
            hosts[name] = _hosts(name, value)
            value = value.get("value", "")
        if not isinstance(value, str):
            raise UsageError(f"secrets: {given} must be text", hint=_SECRET_EXAMPLE)
        if value:
            found[name] = value
    for variable, value in env.items():
        name = variable.removeprefix(PREFIX).lower()
        if variable.startswith(PREFIX) and name.startswith(SECRET_PREFIX) and value:
            found[name.removeprefix(SECRET_PREFIX)] = value
    return found, hosts


def _hosts(name: str, table: Mapping[str, object]) -> tuple[str, ...]:
    """The hosts that a secret is bound to."""
    given = table.get("hosts")
    known = isinstance(given, list) and all(isinstance(it, str) and is_host_pattern(it.lower()) for it in given)
    if set(table) - {"value", "hosts"} or not isinstance(given, list) or not given or not known:
        raise UsageError(f"secrets: {name} is not understood", hint=_BOUND_EXAMPLE)
    return tuple(str(it).lower() for it in given)


def _apply(settings: Settings, chosen: Layer) -> Settings:
    values = {name: value for name, (value, _) in chosen.items()}
    if "rate" in values:
        values["delay"] = 1.0 / values["rate"]
    sources = dict(settings.sources) | {name: source for name, (_, source) in chosen.items()}
    settings = replace(settings, **values, sources=sources)
    if settings.heartbeat * 2 > settings.lease:
        raise UsageError(
            f"a heartbeat every {settings.heartbeat:g} s is too slow for a lease of {settings.lease:g} s",
            hint="make the lease at least twice the heartbeat (--lease, --heartbeat)",
        )
    return settings


def _layer(values: Mapping[str, object], label: Callable[[str], str]) -> Layer:
    layer: Layer = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in SETTINGS:
            raise UsageError(f"{label(key)}: unknown setting", hint=did_you_mean(name, SETTINGS))
        layer[name] = SETTINGS[name].read(value, label(key)), label(key)
    if "delay" in layer and "rate" in layer:
        raise UsageError(
            f"{layer['delay'][1]} and {layer['rate'][1]} conflict", hint="keep one: --rate 2 is --delay 0.5"
        )
    return layer


def _from_variables(env: Mapping[str, str]) -> Layer:
    """The queue, as variables name it that are not ours alone."""
    url, source = queue_from_variables(env)
    return {"queue": (SETTINGS["queue"].read(url, source), source)} if url else {}


def _from_flags(flags: Mapping[str, object] | None) -> Layer:
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    return _layer(given, lambda name: "--" + name.replace("_", "-"))


def _from_env(env: Mapping[str, str]) -> Layer:
    given: dict[str, object] = {}
    for variable, value in env.items():
        name = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or not value.strip():
            continue
        if name == "config" or name.startswith(SECRET_PREFIX):
            continue
        if name in SETTINGS:
            given[name] = value
        elif close := _nearest(name, SETTINGS):
            # Only near misses: container platforms inject SHOAL_… variables of their own.
            raise UsageError(f"{variable}: unknown setting", hint=f"did you mean {PREFIX}{close.upper()}?")
    return _layer(given, lambda name: PREFIX + name.upper())


def _from_file(named: str) -> Layer:
    values = {name: value for name, value in _read_file(named).items() if name not in _TABLES}
    return _layer(values, lambda name: f"{Path(named or SETTINGS_FILE).name}: {name}")


def _read_file(named: str) -> Mapping[str, object]:
    path = Path(named or SETTINGS_FILE)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        if not named:
            return {}
        raise UsageError(f"there is no settings file {named}", hint="check the name given to --config") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error
    return _parse(path, raw)


def read_document(path: Path, what: str) -> Mapping[str, object]:
    """The names and values of a YAML or TOML file that must be there."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"there is no {what} {path}", hint="check its name and folder") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error
    return _parse(path, raw)


def _parse(path: Path, raw: bytes) -> Mapping[str, object]:
    parse = _parse_yaml if path.suffix in (".yaml", ".yml") else _parse_toml
    values = parse(path, raw)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UsageError(f"{path.name} must hold names and values", hint="a line such as: rate = 2")
    return {str(key): value for key, value in values.items()}


def _parse_toml(path: Path, raw: bytes) -> object:
    import tomllib

    try:
        return tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path.name} is not valid TOML: {error}", hint="a line such as: rate = 2") from error


def _parse_yaml(path: Path, raw: bytes) -> object:
    import yaml

    try:
        return yaml.safe_load(raw)
    except yaml.YAMLError as error:
        words = " ".join(str(error).split())
        raise UsageError(f"{path.name} is not valid YAML: {words}", hint="a line such as: rate: 2") from error


def _nearest(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=0.75)), "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelled word: the nearest known one, or all of them."""
    known = list(known)
    close = _nearest(word, known)
    return f"did you mean {close}?" if close else "known are: " + ", ".join(known)


def debug_wanted(env: Mapping[str, str] | None = None) -> bool:
    """Whether SHOAL_DEBUG asks for tracebacks; must never fail, it is asked while failing."""
    word = (os.environ if env is None else env).get(PREFIX + "DEBUG", "")
    return word.strip().lower() in ("1", "true", "yes", "on")


def colour_wanted(env: Mapping[str, str] | None = None) -> bool:
    """Whether the environment leaves colours on (no-color.org, dumb terminals)."""
    env = os.environ if env is None else env
    return not env.get("NO_COLOR") and env.get("TERM", "") != "dumb"


def is_dumb_terminal(env: Mapping[str, str] | None = None) -> bool:
    """Whether the terminal cannot move its cursor."""
    return (os.environ if env is None else env).get("TERM", "") in ("", "dumb")
