"""Settings: one frozen value, and the only reader of the environment and of the settings file.

Every setting is declared once, in `Settings`; its flag (`--max-pages`), its variable
(`SHOAL_MAX_PAGES`) and its key in the settings file (`max_pages`) follow from the field's name.
Precedence: flag > environment > settings file > the scraper's own settings > default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from shoal.core import measure
from shoal.errors import Usage
from shoal.version import __version__

PREFIX = "SHOAL_"
SETTINGS_FILE = "shoal.toml"
STATE_FOLDER = ".shoal"
STATE_FILE = "shoal.db"


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one setting: how it is read, what it accepts and where it is offered."""

    name: str
    parse: Callable[[object], Any]
    accepts: str
    help: str
    section: str
    default: Any
    everywhere: bool  # offered by every command, not by `run` alone

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def switch(self) -> bool:
        return self.parse is measure.switch

    def read(self, value: object, source: str) -> Any:
        try:
            return self.parse(value)
        except (ValueError, TypeError):
            raise Usage(f"{source}: {value!r} is not understood", hint=f"give {self.accepts}") from None


def _declare(
    default: Any,
    parse: Callable[[object], Any],
    accepts: str,
    help: str,
    section: str,
    *,
    everywhere: bool = False,
) -> Any:
    declared = {"parse": parse, "accepts": accepts, "help": help, "section": section}
    return field(default=default, metadata=declared | {"everywhere": everywhere})


_DURATION = 'seconds, or a duration such as "500ms", "1.5s" or "2m"'
_SIZE = 'bytes, or a size such as "500KB", "32MB" or "1GiB"'
_ON = "true or false"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be set, validated; `sources` says where each given value came from."""

    delay: float = _declare(
        1.0,
        measure.seconds(zero=True),
        _DURATION,
        "Time between two requests to a host; 0 is no limit.",
        "Pace",
    )
    rate: float = _declare(
        0.0, measure.rate, "a number above 0, or a rate such as 30/m", "Requests per second and host.", "Pace"
    )
    in_flight: int = _declare(
        2, measure.whole(0), "a whole number; 0 is no limit", "Requests under way at once per host.", "Pace"
    )
    concurrency: int = _declare(
        16, measure.whole(1), "a whole number above 0", "Pages under way at once per worker process.", "Pace"
    )
    workers: int = _declare(
        0,
        measure.whole(0),
        "a whole number; 0 is one per core",
        "Worker processes; 0 is one per core.",
        "Pace",
    )
    ignore_robots: bool = _declare(
        False, measure.switch, _ON, "Fetch what robots.txt asks not to fetch.", "Pace"
    )
    max_pages: int = _declare(
        0,
        measure.whole(0),
        "a whole number; 0 is no limit",
        "Stop after so many pages; 0 is no limit.",
        "Limits",
    )
    max_depth: int | None = _declare(
        None,
        measure.maybe(measure.whole(0)),
        "a whole number, or none",
        "Follow links so far from the start.",
        "Limits",
    )
    timeout: float = _declare(30.0, measure.seconds(), _DURATION, "Time for one request.", "Limits")
    handler_timeout: float = _declare(
        60.0, measure.seconds(), _DURATION, "Time for a handler to work on one page.", "Limits"
    )
    max_body: int = _declare(32_000_000, measure.size, _SIZE, "Largest body that is read.", "Limits")
    worker_memory: int = _declare(
        1_000_000_000, measure.size, _SIZE, "Memory of one worker process before it is replaced.", "Limits"
    )
    retries: int | None = _declare(
        None,
        measure.maybe(measure.whole(0)),
        "a whole number, or none",
        "Try a page again at most so often.",
        "Limits",
    )
    allow_private: str = _declare(
        "",
        measure.private,
        "1, or a list of host:port such as 127.0.0.1:8000,localhost:9000",
        "Reach private and loopback addresses: all, or a list of host:port.",
        "Web",
    )
    user_agent: str = _declare(
        f"shoal/{__version__}", measure.text, "a line of text", "How requests introduce themselves.", "Web"
    )
    queue: str = _declare(
        "",
        measure.text,
        "a file such as ./state.db, or an address such as sqlite:///state.db",
        f"Where the state is kept: ./{STATE_FOLDER}/{STATE_FILE} unless given.",
        "State",
        everywhere=True,
    )
    synchronous: str = _declare(
        "full",
        measure.one_of("full", "normal"),
        "full (survives power loss) or normal (survives crashes)",
        "What SQLite makes durable: full or normal.",
        "State",
    )
    retention: int = _declare(
        30,
        measure.whole(0),
        "days; 0 keeps everything",
        "Days to keep runs that ended; 0 keeps them.",
        "State",
    )
    lease: float = _declare(
        30.0, measure.seconds(), _DURATION, "Time after which a silent worker's pages go to another.", "State"
    )
    heartbeat: float = _declare(10.0, measure.seconds(), _DURATION, "How often a worker reports.", "State")
    log_format: str = _declare(
        "console",
        measure.one_of("console", "json"),
        "console or json",
        "Logs for people or machines.",
        "Logs",
    )
    log_level: str = _declare(
        "warning",
        measure.one_of("debug", "info", "warning", "error"),
        "debug, info, warning or error",
        "Least important level that is logged.",
        "Logs",
    )
    log_file: str = _declare("", measure.text, "a file name", "Log into a file instead of stderr.", "Logs")
    debug: bool = _declare(
        False, measure.switch, _ON, "Show where in the code an error came from.", "Logs", everywhere=True
    )
    sources: Mapping[str, str] = field(default_factory=dict)

    def given(self, *names: str) -> bool:
        """Whether any of these was set by a person and not left to its default."""
        return any(name in self.sources for name in names)

    @property
    def pace_given(self) -> bool:
        return self.given("delay", "rate", "in_flight")

    @property
    def retry_limits(self) -> dict[str, int] | None:
        """Retries by cause, in place of the usual ones; None where nobody asked for others."""
        return None if self.retries is None else {"*": self.retries}

    @property
    def state_file(self) -> Path | None:
        """The file of an SQLite queue, None for any other queue."""
        scheme, mark, rest = self.queue.partition("://")
        if not self.queue:
            return Path(STATE_FOLDER, STATE_FILE)
        if not mark:
            return Path(self.queue)
        return Path(rest.partition("?")[0].removeprefix("/")) if scheme == "sqlite" else None

    @property
    def state_folder(self) -> Path:
        """Where small things that belong to the state are kept on this machine: locks, notes, positions.

        A state file of another name has a folder of its own, so that two in one folder do not mix.
        """
        file = self.state_file
        if file is None:
            return Path(STATE_FOLDER)
        return file.parent if file.name == STATE_FILE else file.with_name(f"{file.name}.d")

    def beneath(self, values: Mapping[str, object], owner: str) -> Settings:
        """The same with a scraper's own settings below what a person gave."""
        layer = _layer(values, lambda name: f"{owner}: {name}")
        taken = set(self.sources)
        if taken & {"delay", "rate"}:
            taken |= {"delay", "rate"}
        return _finish(self, {name: pair for name, pair in layer.items() if name not in taken})


def _settings() -> dict[str, Setting]:
    return {
        item.name: Setting(name=item.name, default=item.default, **item.metadata)
        for item in fields(Settings)
        if item.metadata
    }


SETTINGS: Mapping[str, Setting] = _settings()

Layer = dict[str, tuple[Any, str]]  # name -> (parsed value, where it was given)


def load(
    flags: Mapping[str, object] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    file: str | None = None,
) -> Settings:
    """Read all layers into one value; `flags` holds what was given on the command line, unparsed."""
    env = os.environ if env is None else env
    chosen: Layer = {}
    for layer in (_from_file(file or env.get(PREFIX + "CONFIG") or ""), _from_env(env), _from_flags(flags)):
        if "rate" in layer:
            chosen.pop("delay", None)
        elif "delay" in layer:
            chosen.pop("rate", None)
        chosen |= layer
    return _finish(Settings(), chosen)


def _finish(settings: Settings, chosen: Layer) -> Settings:
    values = {name: value for name, (value, _) in chosen.items()}
    if "rate" in values:
        values["delay"] = 1.0 / values["rate"]
    sources = dict(settings.sources) | {name: source for name, (_, source) in chosen.items()}
    settings = replace(settings, **values, sources=sources)
    if settings.heartbeat * 2 > settings.lease:
        raise Usage(
            f"a heartbeat every {settings.heartbeat:g} s is too slow for a lease of {settings.lease:g} s",
            hint="make the lease at least twice the heartbeat (--lease, --heartbeat)",
        )
    return settings


def _layer(values: Mapping[str, object], label: Callable[[str], str]) -> Layer:
    layer: Layer = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in SETTINGS:
            raise Usage(f"{label(key)}: there is no such setting", hint=did_you_mean(name, SETTINGS))
        layer[name] = SETTINGS[name].read(value, label(key)), label(key)
    if "delay" in layer and "rate" in layer:
        raise Usage(
            f"{layer['delay'][1]} and {layer['rate'][1]} say the same thing twice",
            hint="keep one: --rate 2 is --delay 0.5",
        )
    return layer


def _from_flags(flags: Mapping[str, object] | None) -> Layer:
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    return _layer(given, lambda name: "--" + name.replace("_", "-"))


def _from_env(env: Mapping[str, str]) -> Layer:
    given: dict[str, object] = {}
    for variable, value in env.items():
        name = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or not value.strip() or name == "config":
            continue
        if name in SETTINGS:
            given[name] = value
        elif close := _nearest(name, SETTINGS):
            # Only near misses: container platforms inject SHOAL_… variables of their own.
            raise Usage(
                f"{variable}: there is no such setting", hint=f"did you mean {PREFIX}{close.upper()}?"
            )
    return _layer(given, lambda name: PREFIX + name.upper())


def _from_file(named: str) -> Layer:
    path = Path(named or SETTINGS_FILE)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        if not named:
            return {}
        raise Usage(f"there is no settings file {named}", hint="look at the name given to --config") from None
    except OSError as error:
        raise Usage(f"{path} cannot be read: {error.strerror}", hint="look at its permissions") from error
    return _layer(_parse(path, raw), lambda name: f"{path.name}: {name}")


def _parse(path: Path, raw: bytes) -> Mapping[str, object]:
    parse = _parse_yaml if path.suffix in (".yaml", ".yml") else _parse_toml
    values = parse(path, raw)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise Usage(f"{path.name} must hold names and values", hint="a line such as: rate = 2")
    return {str(key): value for key, value in values.items()}


def _parse_toml(path: Path, raw: bytes) -> object:
    import tomllib

    try:
        return tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Usage(f"{path.name} is not valid TOML: {error}", hint="a line such as: rate = 2") from error


def _parse_yaml(path: Path, raw: bytes) -> object:
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise Usage(
            f"{path.name}: reading YAML needs PyYAML",
            hint=f"pip install 'shoal[yaml]', or write the settings as {SETTINGS_FILE}",
        ) from None
    try:
        return yaml.safe_load(raw)
    except yaml.YAMLError as error:
        words = " ".join(str(error).split())
        raise Usage(f"{path.name} is not valid YAML: {words}", hint="a line such as: rate: 2") from error


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


def dumb_terminal(env: Mapping[str, str] | None = None) -> bool:
    """Whether the terminal cannot move its cursor."""
    return (os.environ if env is None else env).get("TERM", "") in ("", "dumb")
