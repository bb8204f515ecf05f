"""The options of `shoal plan`: numbers as people write them, read by our own parsers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import click

from shoal.core import units
from shoal.errors import UsageError

MAX_COUNT = 10**12
PRICES = {
    "price": "machine_hour",
    "server_price": "server_hour",
    "traffic_price": "traffic_gb",
    "storage_price": "storage_gb_month",
    "proxy_price": "proxy_gb",
    "page_price": "thousand_pages",
}  # by option, the name in core.plan.Prices


def _amount(value: object) -> float:
    found = units.number(value)
    if not 0 <= found <= 1e12:
        raise ValueError(value)
    return found


def _whole(value: object) -> int:
    """1e9, 1000000, 1,000,000 or 1_000_000."""
    found = units.integer(1)(str(value).replace(",", ""))
    if found > MAX_COUNT:
        raise ValueError(value)
    return found


def _share(value: object) -> float:
    text = str(value).strip()
    found = _amount(text[:-1]) / 100 if text.endswith("%") else _amount(text)
    if found > 10:
        raise ValueError(value)
    return found


def _bits(value: object) -> float:
    """Bits per second: 100M, 1G."""
    return float(units.size(str(value).lower().removesuffix("bit/s").removesuffix("bit").strip()))


def _cores(value: object) -> float:
    found = _amount(value)
    if not 0.1 <= found <= 4096:
        raise ValueError(value)
    return found


def _size_or_none(value: object) -> int:
    return 0 if str(value).strip() == "0" else units.size(value)


class Kind(NamedTuple):
    """How a value is written."""

    metavar: str
    parse: Callable[[object], Any]
    accepts: str


COUNT = Kind("N", _whole, "a whole number from 1 to 1e12, such as 5000 or 1e9")
CORES = Kind("N", _cores, "a number above 0")
SIZE = Kind("SIZE", units.size, "a size such as 50kB or 16GB")
TIME = Kind("TIME", units.seconds(), "a time such as 2ms, 12h or 7d")
WAIT = Kind("TIME", units.seconds(zero=True), "a time such as 300ms or 2s; 0 is none")
MONEY = Kind("AMOUNT", _amount, "an amount from 0 on, in any currency")

_OPTIONS = (
    ("--urls", "urls", COUNT, "Pages to fetch."),
    ("--hosts", "hosts", COUNT, "Hosts they are on. [1]"),
    ("--largest-host", "largest_host", COUNT, "Pages of the largest host; default: the n-th largest has 1/n of that."),
    ("--rate", "rate", Kind("N", units.rate, "a rate such as 2 or 30/m"), "Requests per second and host. [1]"),
    ("--delay", "spacing", WAIT, "The same as the time between two requests; 0 is no limit."),
    (
        "--in-flight",
        "in_flight",
        Kind("N", units.integer(0), "a whole number; 0 is no limit"),
        "Requests in progress at once per host. [2]",
    ),
    ("--latency", "latency", WAIT, "Time that a response takes. [0.5s]"),
    ("--page-size", "page_bytes", SIZE, "Size of a page. [50kB]"),
    (
        "--record-size",
        "record_bytes",
        Kind("SIZE", _size_or_none, "a size such as 500, or 0"),
        "Bytes of records per page; 0: the queue keeps none. [500]",
    ),
    ("--cpu-per-page", "page_seconds", TIME, "CPU time of a page in a worker; default: as measured."),
    (
        "--repeated",
        "repeated",
        Kind("SHARE", _share, "a share such as 5% or 0.05"),
        "Retries, as a share of the pages. [0]",
    ),
    ("--machines", "machines", COUNT, "Machines; default: as few as are nearly as fast as hosts allow."),
    ("--within", "within", TIME, "Deadline: how many machines does it take?"),
    ("--cores", "cores", CORES, "Cores of a machine. [4]"),
    ("--memory", "memory", SIZE, "Memory of a machine. [16GB]"),
    (
        "--bandwidth",
        "bandwidth",
        Kind("BITS", _bits, "bits per second such as 100M or 1G"),
        "Bits per second of a machine. [1G]",
    ),
    ("--workers", "workers", COUNT, "Worker processes of a machine; default: one per core."),
    ("--concurrency", "concurrency", COUNT, "Pages in progress per worker; default: what keeps it busy, up to 256."),
    ("--servers", "servers", COUNT, "Servers of the queue. [1]"),
    ("--server-cores", "server_cores", CORES, "Cores of such a server. [4]"),
    ("--server-memory", "server_memory", SIZE, "Memory of such a server. [16GB]"),
    ("--price", "price", MONEY, "Price of a machine per hour."),
    ("--server-price", "server_price", MONEY, "Price of the queue's server per hour; default: that of a machine."),
    ("--traffic-price", "traffic_price", MONEY, "Price of traffic per GB."),
    ("--storage-price", "storage_price", MONEY, "Price of storage per GB and month."),
    ("--proxy-price", "proxy_price", MONEY, "Price of proxies per GB."),
    ("--page-price", "page_price", MONEY, "What else is paid by the page, such as a browser, per 1,000 pages."),
)


def plan_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for flag, name, kind, help in reversed(_OPTIONS):
        command = _option(flag, name, kind, help)(command)
    return command


def _option(flag: str, name: str, kind: Kind, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """None is "not given"."""

    def convert(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        try:
            return kind.parse(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise UsageError(f"{flag} {value} is not understood", hint=f"{flag} takes {kind.accepts}") from error

    return click.option(flag, name, metavar=kind.metavar, callback=convert, help=help)


def given_values(options: dict[str, Any]) -> dict[str, Any]:
    """What was given, by the names of core.plan.PlanRequest; a rate is a spacing."""
    if options["rate"] is not None and options["spacing"] is not None:
        raise UsageError("--rate and --delay say the same", hint="give one of them")
    given = {name: value for name, value in options.items() if value is not None and name not in PRICES}
    if (rate := given.pop("rate", None)) is not None:
        given["spacing"] = 1 / rate
    return given


def given_prices(options: dict[str, Any]) -> dict[str, float]:
    return {PRICES[name]: value for name in PRICES if (value := options[name]) is not None}
