"""Route: a rule that says, by host or by URL, how tasks are treated once they are admitted.

A rule is one line: a pattern, then what it sets. The first rule whose pattern matches wins; what it says
is never part of a task's identity.

    */urgent/*           priority=10 ttl=30m
    *.shop.example       delay=2s in_flight=1 needs=browser
    *                    ttl=1h
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from shoal.core import units
from shoal.core.block_rule import BLOCK_RULES, block_rule
from shoal.core.capability import MAX_EXIT_NAME, capability_names
from shoal.core.glob import escaped
from shoal.core.host_pattern import host_pattern
from shoal.core.lane import is_exit_name
from shoal.core.task import Ack, RequestOptions, Task
from shoal.errors import InvalidUrl, UsageError

MAX_PRIORITY = 1_000_000
MAX_PATTERN = 500
_session_name = re.compile(r"[\w.:-]{1,64}", re.ASCII).fullmatch
_EXAMPLE = "a rule is a pattern and what it sets, such as: */urgent/* priority=10 ttl=30m"


def _priority(value: object) -> int:
    found = units.integer(-MAX_PRIORITY)(value)
    if found > MAX_PRIORITY:
        raise ValueError(value)
    return found


def _needs(value: object) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        raise ValueError(value)
    return capability_names(name.strip() if isinstance(name, str) else name for name in names)


def _session(value: object) -> str:
    name = units.text(value)
    if not _session_name(name):
        raise ValueError(value)
    return name


def _exit(value: object) -> str:
    name = units.text(value)
    if not is_exit_name(name) or len(name) > MAX_EXIT_NAME:
        raise ValueError(value)
    return name


_DURATION = 'seconds above 0, or a duration such as "30m"'
# What a rule can set: how it is read, and what it accepts.
VALUES: dict[str, tuple[Callable[[object], Any], str]] = {
    "priority": (_priority, f"a whole number of at most {MAX_PRIORITY:,}; higher comes first"),
    "ttl": (units.seconds(), _DURATION),
    "ack": (units.one_of("manual", "auto"), "manual or auto"),
    "needs": (_needs, "capabilities such as browser or exit:de, with commas between them"),
    "session": (_session, "up to 64 letters, digits and _ . : -"),
    "cache": (units.seconds(), _DURATION),
    "fetch": (units.one_of("http", "browser", "auto"), "http, browser or auto"),
    "exit": (_exit, "the name of an exit, or direct"),
    "on_block": (block_rule, BLOCK_RULES),
    "delay": (units.seconds(zero=True), 'seconds, or a duration such as "500ms"; 0 is no limit'),
    "rate": (units.rate, "a number above 0, or a rate such as 30/m"),
    "in_flight": (units.integer(0), "a whole number; 0 is no limit"),
}
PACE_VALUES = ("delay", "rate", "in_flight")


class Route(msgspec.Struct, frozen=True):
    """One rule. match: a host ("shop.example", "*.shop.example", "*"), or a URL ("/news/*", "shop.example/news/*",
    "https://shop.example/*"). What is None is left as it is."""

    match: str
    priority: int | None = None
    ttl: float | str | None = None  # the smaller wins, where a task has one of its own
    ack: Ack | None = None
    needs: tuple[str, ...] | str | None = None
    session: str | None = None
    cache: float | str | None = None  # seconds for which a stored response will do
    fetch: Literal["http", "browser", "auto"] | None = None  # with what it is fetched
    exit: str | None = None  # the name of the one that its requests leave by
    on_block: str | None = None  # what becomes of it if the site gives a block page
    delay: float | str | None = None  # between two requests to the host
    rate: float | str | None = None
    in_flight: int | None = None

    def __post_init__(self) -> None:
        _set(self, "match", _pattern(self.match))
        for name, (parse, accepts) in VALUES.items():
            value = getattr(self, name)
            if value is None:
                continue
            try:
                _set(self, name, parse(value))
            except (ValueError, TypeError):
                raise UsageError(f"{name} {value!r} is not understood", hint=f"give {accepts}") from None
        if not self.given:
            raise UsageError(f"{self.match} sets nothing", hint=f"known are: {', '.join(VALUES)}")
        if self.delay is not None and self.rate is not None:
            raise UsageError("delay and rate say the same", hint="keep one of them: rate=2 is delay=0.5")
        paces = [name for name in PACE_VALUES if name in self.given]
        if paces and not self.is_by_host:
            raise UsageError(
                f"{paces[0]} in a rule by URL: a host has one pace for all of its URLs",
                hint=f"write it in a rule by host, such as: {self.host or 'shop.example'} {paces[0]}=…",
            )

    @property
    def given(self) -> dict[str, Any]:
        """What it sets."""
        return {name: value for name in VALUES if (value := getattr(self, name)) is not None}

    @property
    def is_by_host(self) -> bool:
        return "/" not in self.match

    @property
    def host(self) -> str:
        """The host pattern at its beginning; empty in a rule for the URLs of any host."""
        return _host_part(self.match)

    @property
    def url(self) -> str:
        """The glob for the URL, or for its path, after the host."""
        return self.match.removeprefix(self.host)

    @property
    def spacing(self) -> float | None:
        if self.rate is not None:
            return 1.0 / float(self.rate)
        return None if self.delay is None else float(self.delay)

    def __str__(self) -> str:
        """The rule as a line, from which the same rule is read."""
        return " ".join((self.match, *(f"{name}={_written(name, value)}" for name, value in self.given.items())))

    def applied(self, task: Task, *, keep_priority: bool = False, keep_ack: bool = False) -> Task:
        """The task as this rule has it; what it asks for itself stays."""
        changed: dict[str, Any] = {}
        if self.priority not in (None, task.priority) and not keep_priority:
            changed["priority"] = self.priority
        if self.ttl is not None and (task.ttl is None or task.ttl > float(self.ttl)):
            changed["ttl"] = self.ttl
        if self.ack not in (None, task.ack) and not keep_ack:
            changed["ack"] = self.ack
        if self.needs and not task.needs:
            changed["needs"] = self.needs
        if any(value is not None for value in (self.session, self.cache, self.fetch, self.exit, self.on_block)):
            changed["request_options"] = self._options(task.request_options or RequestOptions())
        return msgspec.structs.replace(task, **changed) if changed else task

    def _options(self, options: RequestOptions) -> RequestOptions:
        session = "" if options.session else self.session or ""
        return msgspec.structs.replace(
            options,
            rule_session=session,
            cache=options.cache or float(self.cache or 0.0),
            fetch=options.fetch or self.fetch or "",
            exit=options.exit or ("" if options.proxy else self.exit or ""),
            on_block=options.on_block or self.on_block or "",
        )


def read_route(value: object) -> Route:
    """A rule as somebody wrote it: a line, or names and values; raises UsageError."""
    if isinstance(value, Route):
        return value
    if isinstance(value, str):
        match, *words = units.text(value.replace("\t", " ")).split()
        given: dict[str, object] = {}
        for word in words:
            name, equals, text = word.partition("=")
            if not equals:
                raise UsageError(f"{word!r} has no value", hint=_EXAMPLE)
            if name in given:
                raise UsageError(f"{name} is given twice", hint="keep one of them")
            given[name] = text
        return _route(match, given)
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        values = {str(name).replace("-", "_"): it for name, it in value.items()}
        return _route(values.pop("match", None), values)
    raise UsageError(f"{value!r} is not a rule", hint=_EXAMPLE)


def _route(match: object, given: Mapping[str, Any]) -> Route:
    for name in given:
        if name not in VALUES:
            raise UsageError(f"{name!r} is not known", hint=f"known are: {', '.join(VALUES)}")
    if not isinstance(match, str):
        raise UsageError("it has no match", hint='match: "*/urgent/*", or match: shop.example')
    return Route(match, **given)


def _pattern(text: object) -> str:
    """A pattern in its canonical form."""
    if not isinstance(text, str) or not text or len(text) > MAX_PATTERN or any(c.isspace() or c < " " for c in text):
        raise UsageError(
            f"{str(text)[:100]!r} is not a pattern", hint=f"a host or a URL without spaces, up to {MAX_PATTERN} letters"
        )
    host = text if "/" not in text else _host_part(text)
    if not host:
        if text[0] not in "/*" and "://" not in text:
            raise UsageError(f"no URL matches {text!r}: paths begin with /", hint=f"write /{text} or */{text}")
        return escaped(text)
    try:
        return host_pattern(host) + escaped(text[len(host) :])
    except InvalidUrl:
        raise UsageError(
            f"{host!r} is not a host", hint="write shop.example, *.shop.example or *; a rule by URL has a /"
        ) from None


def _host_part(text: str) -> str:
    """The host pattern before the first slash; none in "/news/*", "*/news/*" and "https://…"."""
    head, slash, _ = text.partition("/")
    if "://" in text or (slash and (not head.strip("*") or "*" in head.removeprefix("*."))):
        return ""
    return head


def _set(route: Route, name: str, value: object) -> None:
    msgspec.structs.force_setattr(route, name, value)


def _written(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".") + ("" if name == "rate" else "s")
    return ",".join(value) if isinstance(value, tuple) else str(value)
