"""The cluster file: one YAML or TOML file that says what a cluster is made of, and the only reader of it.

    coordinator: {host: 127.0.0.1, port: 8700}
    redis:       {url: redis://queue.internal:6379/0}       or  queue: {url: postgresql://…}
    queue:       {name: prices, max_retries: 3, retry_delay: 60}
    workers:     {count: 10, per_machine: 2}
    storage:     {type: postgresql, url: postgresql://store.internal/results}
    scrapers:    [books.py, shops/]
    exits:       {office: office_proxy}                      names and proxies, as in shoal.toml
    sessions:    {shop: {secret: shop, login: {form: …}}}    names and logins, as in shoal.toml
    routes:      ["*/urgent/* priority=10 ttl=30m"]          rules by host or URL
    settings:    {rate: 2, user_agent: ...}                  any setting of shoal

Every key can be given or overruled by a variable: SHOAL_CLUSTER_WORKERS_COUNT=4. SHOAL_CLUSTER names the
file. Settings that the environment or a flag gives win over those of the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from shoal.config import load
from shoal.config.load import PREFIX, SETTINGS, Settings, did_you_mean
from shoal.config.setting import read_value
from shoal.core import units
from shoal.core.queue_url import SHARDS, queue_url, split_urls
from shoal.errors import UsageError
from shoal.queue.registry import backend_of, find_backend

FILE_VARIABLE = PREFIX + "CLUSTER"
DEFAULT_PORT = 8700
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_PACE_SETTINGS = {"delay", "rate"}  # two words for one thing
_STORES = ("sqlite", "postgresql", "postgres")


class ClusterConfig(msgspec.Struct, frozen=True):
    """A cluster, validated; made by load_config."""

    source: str = ""  # where it was read, for people
    host: str = "127.0.0.1"  # of the coordinator
    port: int = DEFAULT_PORT
    queue: str = ""  # its URL, namespace included; empty: a file on this machine
    count: int = 0  # workers in all; 0: as many as are started
    per_machine: int = 0  # of them on one machine; 0: one per core
    max_retries: int | None = None
    retry_delay: float | None = None
    store: str = ""  # empty: records stay with the queue
    scrapers: tuple[str, ...] = ()
    settings: dict[str, Any] = {}  # as they were written
    exits: dict[str, Any] | None = None  # likewise, with files by their full names
    sessions: dict[str, Any] | None = None  # likewise
    file: str = ""  # its path

    @property
    def machines(self) -> int:
        """How many machines the workers take; 0: nobody said."""
        return -(-self.count // self.per_machine) if self.count and self.per_machine else 0

    def values(self) -> dict[str, object]:
        """What it says as settings."""
        from_file: dict[str, object] = dict(self.settings)
        own = {
            "queue": self.queue or None,
            "store": self.store or None,
            "workers": self.per_machine or None,
            "retries": self.max_retries,
            "retry_delay": self.retry_delay,
        }
        return from_file | {name: value for name, value in own.items() if value is not None}


def load_config(path: str | os.PathLike[str] | None = None, *, env: Mapping[str, str] | None = None) -> ClusterConfig:
    """Read a cluster file, or the one that SHOAL_CLUSTER names, with what the environment overrules."""
    env = os.environ if env is None else env
    place = str(path or env.get(FILE_VARIABLE, ""))
    overrides = _from_env(env)
    if not place and not overrides:
        raise UsageError("no cluster file given", hint=f"name one, or set {FILE_VARIABLE}=cluster.yaml")
    written = load.read_document(Path(place), "cluster file") if place else {}
    return _Reader(Path(place).name, Path(place).parent if place else Path()).read(written, overrides)


def cluster_from_env(env: Mapping[str, str] | None = None) -> ClusterConfig | None:
    """The cluster that the environment describes; None where it says nothing of one."""
    env = os.environ if env is None else env
    return load_config(env=env) if env.get(FILE_VARIABLE) or _from_env(env) else None


def cluster_settings(cluster: ClusterConfig, own: Settings | None = None) -> Settings:
    """All settings of a process of the cluster: flags, then the environment, the cluster file, shoal.toml."""
    own = load.load() if own is None else own
    above = {name for name, source in own.sources.items() if source.startswith(("--", PREFIX))}
    above |= _PACE_SETTINGS if above & _PACE_SETTINGS else set()
    from_file = {name: value for name, value in cluster.values().items() if name not in above}
    replaced = from_file.keys() | (_PACE_SETTINGS if from_file.keys() & _PACE_SETTINGS else set())
    kept = {name: source for name, source in own.sources.items() if name not in replaced}
    owner = cluster.source or "the cluster"
    named = (*own.named_files, owner)  # it is never just found: an argument or a variable says which
    settings = load.with_defaults(replace(own, sources=kept, named_files=named), from_file, owner)
    file = Path(cluster.file or owner)
    return load.with_sessions(load.with_exits(settings, cluster.exits, file), cluster.sessions, file)


class KeySpec(msgspec.Struct, frozen=True):
    """One value: how it is read, and what it accepts."""

    parse: Callable[[object], Any]
    accepts: str

    def read(self, value: object, where: str) -> Any:
        return read_value(self.parse, value, where, self.accepts)


def _name(value: object) -> str:
    if not _NAME.fullmatch(units.text(value)):
        raise ValueError(value)
    return units.text(value)


def _port(value: object) -> int:
    found = units.integer(1)(value)
    if found > 65_535:
        raise ValueError(value)
    return found


def _host(value: object) -> str:
    text = units.text(value)
    if not text or "/" in text or " " in text:
        raise ValueError(value)
    return text


_COUNT = KeySpec(units.integer(1), "a whole number above 0")
_URL = KeySpec(queue_url, "a URL such as redis://host:6379/0 or postgresql://user@host/database, or a list of them")
SCHEMA: dict[str, dict[str, KeySpec]] = {
    "coordinator": {
        "host": KeySpec(_host, "a name or an address of this machine, such as 127.0.0.1"),
        "port": KeySpec(_port, "a port from 1 to 65535"),
    },
    "redis": {"url": KeySpec(units.text, "a URL such as redis://host:6379/0")},
    "queue": {
        "url": _URL,
        "name": KeySpec(_name, "a word of letters, digits, _ . and -"),
        "max_retries": KeySpec(units.integer(0), "a whole number"),
        "retry_delay": KeySpec(units.seconds(zero=True), 'seconds, or a duration such as "2m"'),
    },
    "workers": {"count": _COUNT, "per_machine": _COUNT},
    "storage": {
        "type": KeySpec(units.one_of(*_STORES, "queue"), "sqlite, postgresql or queue"),
        "url": KeySpec(units.text, "a URL such as sqlite:///results.db or postgresql://user@host/database"),
    },
}
LIST_KEYS = ("scrapers",)
OPEN_SECTIONS = ("settings",)  # whose keys are the settings of shoal
KNOWN_KEYS = (*SCHEMA, *LIST_KEYS, "routes", "exits", "sessions", *OPEN_SECTIONS)


def _from_env(env: Mapping[str, str]) -> dict[tuple[str, str], tuple[str, str]]:
    """(section, key) -> (value, variable)."""
    found = {}
    for variable, value in env.items():
        if not variable.startswith(FILE_VARIABLE + "_") or not value.strip():
            continue
        section, _, key = variable.removeprefix(FILE_VARIABLE + "_").lower().partition("_")
        if key not in SCHEMA.get(section, {}) and not (section in LIST_KEYS and not key):
            near = [f"{FILE_VARIABLE}_{a}_{b}".upper() for a, keys in SCHEMA.items() for b in keys]
            raise UsageError(f"{variable}: unknown key", hint=did_you_mean(variable, near))
        found[section, key] = value, variable
    return found


class _Reader:
    """Reads one file; every complaint says where in it."""

    def __init__(self, source: str, folder: Path) -> None:
        self._source = source
        self._folder = folder

    def read(
        self, written: Mapping[str, object], overrides: Mapping[tuple[str, str], tuple[str, str]]
    ) -> ClusterConfig:
        for key in written:
            if key not in KNOWN_KEYS:
                raise UsageError(f"{self._location(key)}: unknown key", hint=did_you_mean(key, KNOWN_KEYS))
        found = {section: self._section(written, section) for section in SCHEMA}
        settings = self._settings(written.get("settings")) | self._routes(written)
        scrapers = self._scrapers(written.get("scrapers"), self._folder)
        for (section, key), (value, variable) in overrides.items():
            if section in LIST_KEYS:
                scrapers = self._scrapers(re.split(r"[\s,]+", value.strip()), Path())
            else:
                found[section][key] = SCHEMA[section][key].read(value, variable)
        config = self._build(found, scrapers, settings)
        tables = {key: self._table(written[key], key) for key in ("exits", "sessions") if key in written}
        if not tables:
            return config
        return msgspec.structs.replace(config, **tables, file=str(self._folder / self._source))

    def _build(
        self, found: Mapping[str, dict[str, Any]], scrapers: tuple[str, ...], settings: dict[str, Any]
    ) -> ClusterConfig:
        workers, queue = found["workers"], found["queue"]
        count = workers.get("count", 0)
        per_machine = workers.get("per_machine", count)
        if count and per_machine > count:
            raise UsageError(
                f"{self._location('workers.per_machine')}: {per_machine} is more than workers.count, {count}",
                hint="count is for all machines together, per_machine for each",
            )
        for name, key in (("retries", "queue.max_retries"), ("retry_delay", "queue.retry_delay")):
            if name in settings and key.partition(".")[2] in queue:
                raise UsageError(
                    f"{self._location('settings.' + name)}: {key} is the same setting", hint="keep one of them"
                )
        for name, key in (("queue", "queue.url"), ("store", "storage.url"), ("workers", "workers.per_machine")):
            if name in settings:
                raise UsageError(f"{self._location('settings.' + name)}: this has its own key", hint=f"write {key}")
        return ClusterConfig(
            source=self._source,
            host=found["coordinator"].get("host", "127.0.0.1"),
            port=found["coordinator"].get("port", DEFAULT_PORT),
            queue=self._queue(found["redis"].get("url", ""), queue),
            count=count,
            per_machine=per_machine,
            max_retries=queue.get("max_retries"),
            retry_delay=queue.get("retry_delay"),
            store=self._store(found["storage"]),
            scrapers=scrapers,
            settings=settings,
        )

    def _routes(self, written: Mapping[str, object]) -> dict[str, Any]:
        """A setting with a key of its own."""
        if "routes" not in written:
            return {}
        given = written.get("settings")
        if isinstance(given, Mapping) and "routes" in given:
            raise UsageError(f"{self._location('settings.routes')}: routes is the same setting", hint="keep one")
        return {"routes": list(SETTINGS["routes"].read(written["routes"], self._location("routes")))}

    def _section(self, written: Mapping[str, object], section: str) -> dict[str, Any]:
        values = self._table(written.get(section), section)
        for key in values:
            if key not in SCHEMA[section]:
                raise UsageError(
                    f"{self._location(section)}.{key}: unknown key", hint=did_you_mean(key, SCHEMA[section])
                )
        return {
            key: SCHEMA[section][key].read(value, f"{self._location(section)}.{key}") for key, value in values.items()
        }

    def _settings(self, value: object) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, given in self._table(value, "settings").items():
            name = key.replace("-", "_")
            if name not in SETTINGS:
                raise UsageError(
                    f"{self._location('settings')}.{key}: unknown setting", hint=did_you_mean(name, SETTINGS)
                )
            SETTINGS[name].read(given, f"{self._location('settings')}.{key}")
            found[name] = given
        if "delay" in found and "rate" in found:
            raise UsageError(
                f"{self._location('settings')}: delay and rate conflict", hint="keep one: rate 2 is delay 0.5"
            )
        return found

    def _scrapers(self, value: object, folder: Path) -> tuple[str, ...]:
        """Targets; files and folders are looked for beside the cluster file."""
        where = self._location("scrapers")
        if value is None:
            return ()
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or not all(isinstance(it, str) and it.strip() for it in value):
            raise UsageError(f"{where}: {value!r} is not understood", hint="a list such as [books.py, shops/]")
        return tuple(_resolve_target(target.strip(), folder) for target in value)

    def _table(self, value: object, section: str) -> dict[str, object]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            keys = ", ".join(SCHEMA.get(section, {"rate": ""}))
            raise UsageError(f"{self._location(section)}: {value!r} is not understood", hint=f"keys below it: {keys}")
        return {str(key): item for key, item in value.items() if item is not None}

    def _queue(self, redis: str, queue: Mapping[str, Any]) -> str:
        url, name = queue.get("url", ""), queue.get("name", "")
        if redis and url:
            raise UsageError(f"{self._location('redis.url')}: there is also a queue.url", hint="keep the one you want")
        if redis and ((backend := find_backend(redis)) is None or backend.name != "redis"):
            raise UsageError(
                f"{self._location('redis.url')}: that is not a redis:// URL", hint="other queues: queue.url"
            )
        url = redis or url
        if not name:
            return str(url)
        if backend_of(url).name == "shards":
            return SHARDS + ",".join(self._named(part, name) for part in split_urls(url))
        return self._named(url, name)

    def _named(self, url: str, name: str) -> str:
        """The URL with the queue's name as its namespace."""
        if backend_of(url).embedded:
            raise UsageError(
                f"{self._location('queue.name')}: a file holds one queue, which has no name",
                hint="give every queue a file of its own (queue.url), or use redis:// or postgresql://",
            )
        parts = urlsplit(url)
        known = parse_qs(parts.query).get("namespace", [name])[-1]
        if known != name:
            raise UsageError(f"{self._location('queue.name')}: the URL says namespace={known}", hint="keep one of them")
        if "namespace" in parse_qs(parts.query):
            return url
        return f"{url}{'&' if parts.query else '?'}namespace={name}"

    def _store(self, storage: Mapping[str, Any]) -> str:
        kind, url = storage.get("type", ""), str(storage.get("url", ""))
        scheme = url.partition("://")[0] if "://" in url else ""
        where = self._location("storage")
        if kind == "queue":
            if url:
                raise UsageError(f"{where}.url: records stored in the queue need none", hint="leave it out")
            return ""
        if kind and not url:
            raise UsageError(f"{where}.url is missing", hint="sqlite:///results.db, or postgresql://user@host/database")
        if url and scheme not in _STORES:
            raise UsageError(f"{where}.url: records are stored in SQLite or PostgreSQL", hint="sqlite:///results.db")
        if kind and (kind == "sqlite") != (scheme == "sqlite"):
            raise UsageError(f"{where}.type: {kind}, but the URL begins with {scheme}://", hint="make them agree")
        return url

    def _location(self, key: str) -> str:
        return f"{self._source}: {key}" if self._source else key


def _resolve_target(target: str, folder: Path) -> str:
    place, colon, name = target.partition(":")
    found = folder / place
    return f"{found}{colon}{name}" if place and found.exists() else target
