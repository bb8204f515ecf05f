"""Settings: every setting, declared once; its flag, variable and key in the settings file follow from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from shoal.core import measure
from shoal.errors import Usage
from shoal.version import __version__

PREFIX = "SHOAL_"
SETTINGS_FILE = "shoal.toml"
STATE_FOLDER = ".shoal"
STATE_FILE = "shoal.db"
LISTEN = "127.0.0.1:8080"


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
    served: bool = False  # of the control room: offered by `serve` alone
    hidden: bool = False  # a secret: its value is never shown

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
    served: bool = False,
    hidden: bool = False,
) -> Any:
    declared: dict[str, Any] = {"parse": parse, "accepts": accepts, "help": help, "section": section}
    declared |= {"everywhere": everywhere, "served": served, "hidden": hidden}
    return field(default=default, metadata=declared, repr=not hidden)


def _place(value: object) -> str:
    """Where to listen: "8080" is on this machine only, "0.0.0.0:8080" for others, too."""
    host, colon, port = measure.text(str(value) if isinstance(value, int) else value).rpartition(":")
    if not port.isdecimal() or int(port) > 65_535 or (colon and not host) or "/" in host:
        raise ValueError(value)
    return f"{host or '127.0.0.1'}:{int(port)}"


def _dashboard(value: object) -> str:
    """Off, on at the usual place, or a place."""
    try:
        return LISTEN if measure.switch(value) else ""
    except ValueError:
        return _place(value)


def _collector(value: object) -> str:
    """Off, on as the standard variables say, or an address."""
    try:
        return "1" if measure.switch(value) else ""
    except ValueError:
        text = measure.text(value)
        if not text.startswith(("http://", "https://")):
            raise
        return text


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
    adapt: bool = _declare(
        True, measure.switch, _ON, "Slow down for hosts that answer slowly or refuse, then speed up.", "Pace"
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
    connect_timeout: float = _declare(
        10.0, measure.seconds(), _DURATION, "Time to connect, TLS included.", "Limits"
    )
    first_byte_timeout: float = _declare(
        20.0, measure.seconds(), _DURATION, "Time until the headers of an answer are there.", "Limits"
    )
    min_speed: int = _declare(
        100,
        measure.whole(0),
        "bytes per second; 0 is no limit",
        "Slowest answer that is put up with.",
        "Limits",
    )
    slow_for: float = _declare(
        15.0, measure.seconds(), _DURATION, "How long an answer may be slower than that.", "Limits"
    )
    parse_timeout: float = _declare(
        5.0, measure.seconds(), _DURATION, "CPU time for parsing one page.", "Limits"
    )
    handler_timeout: float = _declare(
        60.0, measure.seconds(), _DURATION, "Time for a handler to work on one page.", "Limits"
    )
    max_body: int = _declare(32_000_000, measure.size, _SIZE, "Largest body, unpacked.", "Limits")
    max_download: int = _declare(
        32_000_000, measure.size, _SIZE, "Largest body as it comes over the wire, compressed.", "Limits"
    )
    max_ratio: int = _declare(
        200, measure.whole(2), "a whole number above 1", "Most that a body may grow when unpacked.", "Limits"
    )
    max_headers: int = _declare(256_000, measure.size, _SIZE, "Largest headers of an answer.", "Limits")
    max_header_count: int = _declare(
        500, measure.whole(1), "a whole number above 0", "Most header lines of an answer.", "Limits"
    )
    max_informational: int = _declare(
        10, measure.whole(0), "a whole number", "Most 1xx answers before the real one.", "Limits"
    )
    max_redirects: int = _declare(
        10, measure.whole(0), "a whole number", "Most redirects of one request.", "Limits"
    )
    max_per_shape: int = _declare(
        100_000,
        measure.whole(0),
        "a whole number; 0 is no limit",
        "Most addresses of one shape (numbers and values aside) per site.",
        "Limits",
    )
    max_same_content: int = _declare(
        50,
        measure.whole(0),
        "a whole number; 0 is no limit",
        "Pages of a site with the same content whose links are followed.",
        "Limits",
    )
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
    retry_delay: float | None = _declare(
        None,
        measure.maybe(measure.seconds(zero=True)),
        _DURATION + ", or none",
        "Time before the second try of a page; doubled each time.",
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
    header: tuple[str, ...] = _declare(
        (),
        measure.lines,
        'lines such as "Accept-Language: de"',
        "A header for every request; may be given several times.",
        "Web",
    )
    cookies: bool = _declare(True, measure.switch, _ON, "Keep the cookies that sites set.", "Web")
    proxy: str = _declare(
        "",
        measure.text,
        "http://…, socks5h://…, or the name of a secret that holds one",
        "Send requests through a proxy.",
        "Web",
    )
    auth: str = _declare(
        "",
        measure.text,
        "the name of a secret that holds user:password or a token",
        "Log in at the start hosts.",
        "Web",
    )
    http2: bool = _declare(True, measure.switch, _ON, "Speak HTTP/2 where a server offers it.", "Web")
    ca_file: str = _declare("", measure.text, "a file name", "Certificates to trust.", "Web")
    scope: str = _declare(
        "host",
        measure.one_of("host", "site", "any"),
        "host, site or any",
        "Follow links to the start hosts, to their whole sites, or anywhere.",
        "Addresses",
    )
    include: tuple[str, ...] = _declare(
        (), measure.lines, "patterns such as /catalogue/*", "Follow only links that match.", "Addresses"
    )
    exclude: tuple[str, ...] = _declare(
        (), measure.lines, "patterns such as */print/*", "Never follow links that match.", "Addresses"
    )
    sort_query: bool = _declare(
        False, measure.switch, _ON, "Addresses that differ in the order of ?a&b are one.", "Addresses"
    )
    drop_tracking: bool = _declare(
        False, measure.switch, _ON, "Take utm_source, gclid and their like out of addresses.", "Addresses"
    )
    csv_safe: bool = _declare(
        False, measure.switch, _ON, "Keep spreadsheets from running cells of a CSV as formulas.", "Output"
    )
    keep_raw: bool = _declare(
        False, measure.switch, _ON, "Keep every page as it came, to extract again later.", "Output"
    )
    revalidate: bool = _declare(
        False, measure.switch, _ON, "Fetch kept pages again only if they have changed.", "Output"
    )
    queue: str = _declare(
        "",
        measure.text,
        "a file such as ./state.db, or an address: sqlite:///state.db, postgresql://…, redis://…",
        f"Where the state is kept: ./{STATE_FOLDER}/{STATE_FILE} unless given.",
        "State",
        everywhere=True,
    )
    store: str = _declare(
        "",
        measure.text,
        "sqlite:///results.db or postgresql://…",
        "Where records are stored beside the queue; with the queue unless given.",
        "State",
        everywhere=True,
    )
    outbox_limit: int = _declare(
        50_000,
        measure.whole(1),
        "a whole number above 0",
        "Records that may wait for the store before workers wait, too.",
        "State",
    )
    batch_size: int = _declare(
        0,
        measure.whole(0),
        "a whole number; 0 is as many as are needed",
        "Most tasks to take from the queue at once.",
        "Pace",
    )
    name: str = _declare(
        "",
        measure.text,
        "a word; the name of this machine unless given",
        "What workers started here are called.",
        "Fleet",
    )
    scrapers: tuple[str, ...] = _declare(
        (),
        measure.lines,
        "files, folders or modules",
        "Where scrapers are looked for by name: files, folders, modules; may be given several times.",
        "Fleet",
    )
    stale_after: float = _declare(
        60.0,
        measure.seconds(),
        _DURATION,
        "Silence after which a worker is shown as stale.",
        "Fleet",
        everywhere=True,
    )
    health: str = _declare(
        "",
        measure.text,
        "a port, or an address and a port such as 0.0.0.0:8080",
        "Where a worker answers /health, /ready and /metrics.",
        "Fleet",
    )
    listen: str = _declare(
        LISTEN,
        _place,
        "a port of this machine, or an address and a port such as 0.0.0.0:8080",
        "Where the control room is; port 0 is any free one.",
        "Control room",
        served=True,
    )
    token: str = _declare(
        "",
        measure.text,
        "a long random text",
        "A token that may do everything; better given as SHOAL_TOKEN.",
        "Control room",
        served=True,
        hidden=True,
    )
    api_rate: int = _declare(
        1000,
        measure.whole(1),
        "a whole number above 0",
        "Requests per second and caller, over a while; five times as many at once.",
        "Control room",
        served=True,
    )
    api_at_once: int = _declare(
        100,
        measure.whole(1),
        "a whole number above 0",
        "Requests at work at once; twenty times as many may wait.",
        "Control room",
        served=True,
    )
    access_log: bool = _declare(
        False, measure.switch, _ON, "Log every request, without secrets.", "Control room", served=True
    )
    dashboard: str = _declare(
        "",
        _dashboard,
        "true, a port, or an address and a port",
        f"Show the run in a browser, at {LISTEN} unless a port is given.",
        "Output",
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
    otel: str = _declare(
        "",
        _collector,
        "an address such as http://collector:4318, or true for what OTEL_EXPORTER_OTLP_ENDPOINT says",
        "Where figures and traces go, by OpenTelemetry (shoal[otel]).",
        "Logs",
    )
    debug: bool = _declare(
        False, measure.switch, _ON, "Show where in the code an error came from.", "Logs", everywhere=True
    )
    sources: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    bound: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # hosts a secret is for, by its name

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

        A state file of another name has a folder of its own, and so has every server's queue: two in one
        folder do not mix, and what one has forgotten may still be the other's.
        """
        file = self.state_file
        if file is None:
            scheme, _, rest = self.queue.partition("://")
            host, slash, place = rest.partition("/")
            address = host.rpartition("@")[2] + slash + place  # whoever logs in: it is the same queue
            return Path(STATE_FOLDER, f"{scheme}-{sha256(address.encode()).hexdigest()[:8]}")
        return file.parent if file.name == STATE_FILE else file.with_name(f"{file.name}.d")


def _settings() -> dict[str, Setting]:
    return {
        item.name: Setting(name=item.name, default=item.default, **item.metadata)
        for item in fields(Settings)
        if item.metadata
    }


SETTINGS: Mapping[str, Setting] = _settings()
