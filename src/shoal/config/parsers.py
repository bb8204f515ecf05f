"""How values of settings are understood, as they stand in a file, a variable or an option.

They raise ValueError or TypeError for what is not understood (the declaration says what is), or a UsageError that
says more.
"""

from __future__ import annotations

import re
import shlex
from ipaddress import ip_network

from shoal.core import units
from shoal.core.capability import MAX_CAPABILITIES, MAX_EXIT_NAME, Needs, capability_names
from shoal.core.celery_name import is_task_name, is_task_pattern
from shoal.core.dead_retention import MIN_DEAD_RETENTION
from shoal.core.seen_set import is_name
from shoal.core.sitemap import is_date
from shoal.errors import UsageError

DEFAULT_LISTEN = "127.0.0.1:8080"
MAX_UNIQUE_FIELDS = 10
MIN_SESSION_KEY = 16  # letters
HTTP_CACHE = "http"  # of the setting cache: by the headers of each response
_is_service = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_.-]*/)?[A-Za-z0-9][A-Za-z0-9_.-]*").fullmatch


def parse_listen(value: object) -> str:
    """Where to listen: "8080" is on this machine only, "0.0.0.0:8080" for others, too."""
    host, colon, port = units.text(str(value) if isinstance(value, int) else value).rpartition(":")
    if not port.isdecimal() or int(port) > 65_535 or (colon and not host) or "/" in host:
        raise ValueError(value)
    return f"{host or '127.0.0.1'}:{int(port)}"


def parse_exit(value: object) -> str:
    from shoal.core.lane import is_exit_name  # late: --help needs no lanes

    name = units.text(value)
    if not is_exit_name(name) or len(name) > MAX_EXIT_NAME:
        raise ValueError(value)
    return name


def parse_session(value: object) -> str:
    from shoal.core.session_options import is_session_name  # late, as above

    name = units.text(value)
    if not is_session_name(name):
        raise ValueError(value)
    return name


def parse_session_key(value: object) -> str:
    """Whoever can read the queue can try keys for as long as they like."""
    key = units.text(value)
    if len(key) < MIN_SESSION_KEY:
        raise UsageError(f"it has fewer than {MIN_SESSION_KEY} letters", hint="make one: openssl rand -hex 32")
    return key


def parse_on_block(value: object) -> str:
    from shoal.core.block_rule import block_rule  # late: --help needs no lanes

    return block_rule(value)


def parse_dashboard(value: object) -> str:
    """Off, on at the usual address, or an address."""
    try:
        return DEFAULT_LISTEN if units.boolean(value) else ""
    except ValueError:
        return parse_listen(value)


def parse_otel(value: object) -> str:
    """Off, on as the standard variables say, or a URL."""
    try:
        return "1" if units.boolean(value) else ""
    except ValueError:
        text = units.text(value)
        if not text.startswith(("http://", "https://")):
            raise
        return text


def parse_capabilities(value: object) -> Needs:
    """Names of capabilities, several also in one text."""
    return capability_names(
        (name for line in units.lines(value) for name in line.replace(",", " ").split()), most=MAX_CAPABILITIES
    )


def parse_field_names(value: object) -> tuple[str, ...]:
    """Names of fields, several also in one text."""
    names = tuple(name.strip() for line in units.lines(value) for name in line.split(","))
    if len(names) > MAX_UNIQUE_FIELDS or not all(0 < len(name) <= 200 for name in names):
        raise ValueError(value)
    return tuple(dict.fromkeys(names))


def parse_networks(value: object) -> tuple[str, ...]:
    """Addresses and networks, several also in one text."""
    words = [word for line in units.lines(value) for word in line.replace(",", " ").split()]
    return tuple(str(ip_network(word)) for word in words)


def parse_cache(value: object) -> str:
    """ "" (off), "http", or seconds."""
    if isinstance(value, str) and value.strip().lower() == HTTP_CACHE:
        return HTTP_CACHE
    if value is False or (isinstance(value, str) and value.strip().lower() in ("", "off", "no", "none", "false")):
        return ""
    seconds: float = units.seconds(zero=True)(value)
    return f"{seconds:g}s" if seconds else ""


def parse_worker_rate(value: object) -> float:
    """Pages per second; 0 is no limit."""
    if isinstance(value, int | float | str) and str(value).strip().lower() in ("0", "0.0", "none"):
        return 0.0
    return units.rate(value)


def parse_celery_task(value: object) -> str:
    name = units.text(value)
    if name and not is_task_name(name):
        raise ValueError(value)
    return name


def parse_celery_allow(value: object) -> tuple[str, ...]:
    """Names and patterns, several also in one text."""
    names = tuple(word for line in units.lines(value) for word in line.replace(",", " ").split())
    if not all(is_task_pattern(name) for name in names):
        raise ValueError(value)
    return names


def parse_seen_set(value: object) -> str:
    name = units.text(value)
    if name and not is_name(name):
        raise ValueError(value)
    return name


def parse_since(value: object) -> str:
    """A date, or a time before the moment at which a sitemap is read."""
    text = units.text(value)
    if text and not (is_date(text) or units.seconds()(text)):
        raise ValueError(value)
    return text


def parse_arguments(value: object) -> tuple[str, ...]:
    """The arguments of a program: a list of them, or one text as in a shell, which no shell ever sees."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple):
        raise TypeError(value)
    texts = [units.text(word) for word in words]
    return tuple(shlex.split(texts[0]) if len(texts) == 1 else texts)


def parse_size_or_0(value: object) -> int:
    return 0 if str(value).strip() == "0" else units.size(value)


def parse_share(value: object) -> float:
    """A share of a whole, also in per cent."""
    is_percent = isinstance(value, str) and value.strip().endswith("%")
    found = units.number(str(value).strip().rstrip("%") if is_percent else value) / (100 if is_percent else 1)
    if not 0 < found <= 1:
        raise ValueError(value)
    return found


def parse_service_name(value: object) -> str:
    """As compose, swarm and Kubernetes allow it: never what their programs would take for an option."""
    name = units.text(value)
    if name and not _is_service(name):
        raise ValueError(value)
    return name


def parse_dead_retention(value: object) -> float:
    seconds: float = units.seconds(zero=True)(value)
    if 0 < seconds < MIN_DEAD_RETENTION:
        raise ValueError(value)
    return seconds


def parse_steps(value: object) -> tuple[str, ...]:
    from shoal.core.browser_step import step_lines  # late: --help needs no steps

    return step_lines(value)


def parse_browser_load(value: object) -> tuple[str, ...]:
    words = {word for line in units.lines(value) for word in line.replace(",", " ").split()}
    if not words <= {"images", "media", "fonts"}:
        raise ValueError(value)
    return tuple(sorted(words))


def parse_routes(value: object) -> tuple[str, ...]:
    from shoal.core.routes import route_lines  # late: most commands have none

    return route_lines(value)
