"""Setting: the declaration of one setting, with everything that other parts need to know about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from shoal.core import units
from shoal.errors import UsageError

if TYPE_CHECKING:
    from shoal.config.settings import Settings

PREFIX = "SHOAL_"
_only_cause = re.compile(r"`([a-z_.]+)`").fullmatch

# run: part of what a run asks for. It is kept with the run, reaches every worker that serves it, and may be
# asked for over the API. machine: each machine's own, which no run can change.
Scope = Literal["run", "machine"]
# Which commands offer it: those that fetch, the server, those that scale, or every one of them.
Commands = Literal["run", "serve", "run and serve", "run and scale", "serve and scale", "all"]


class _Unchanged:
    """Marks settings that mean the same when saved pages are extracted again."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = _Unchanged()


@dataclass(frozen=True, slots=True)
class Setting:
    """How a setting is read, what it accepts, who may set it, and where it is offered."""

    name: str
    default: Any
    parse: Callable[[object], Any]
    accepts: str
    help: str
    section: str
    scope: Scope
    commands: Commands = "run"
    connection: bool = False  # requests that differ in it share no connections
    credential: bool = False  # holds a login or a proxy, or the name of a secret that does
    hidden: bool = False  # a secret: its value is never shown
    beyond: str = ""  # a limit: what becomes of whatever exceeds it
    refuses: str = ""  # the cause of pages that fail for as long as it is not set
    at_start: bool = False  # fixed when a run begins: another value later does not count for that run
    # A limit: the most a stranger's run may ask of a machine.
    ceiling: Callable[[Settings], Any] | None = None
    replay: Any = UNCHANGED  # its value while saved pages are extracted again

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def is_boolean(self) -> bool:
        return self.parse is units.boolean

    @property
    def cause(self) -> str:
        """The cause of pages that fail because of it; "" where none does."""
        limit = _only_cause(self.beyond)
        return limit[1] if limit else self.refuses

    def read(self, value: object, source: str) -> Any:
        return read_value(self.parse, value, source, self.accepts)


def read_value(parse: Callable[[object], Any], value: object, source: str, accepts: str) -> Any:
    try:
        return parse(value)
    except (ValueError, TypeError):
        raise UsageError(f"{source}: {value!r} is not understood", hint=f"give {accepts}") from None
    except UsageError as error:
        raise UsageError(f"{source}: {error}", hint=error.hint) from None


def declare(
    default: Any,
    help: str,
    section: str,
    *,
    scope: Scope,
    parse: Callable[[object], Any] = units.text,
    accepts: str = "text",
    **properties: Any,
) -> Any:
    """The field of a setting; where it belongs must be said, everything else has a usual value."""
    declared = {"parse": parse, "accepts": accepts, "help": help, "section": section, "scope": scope}
    return field(default=default, metadata=declared | properties, repr=not properties.get("hidden"))


def duration(default: float | None, help: str, section: str, *, zero: bool = False, **properties: Any) -> Any:
    accepts = 'seconds, or a duration such as "500ms", "1.5s" or "2m"'
    parse: Callable[[object], Any] = units.seconds(zero=zero)
    if default is None:
        parse, accepts = units.optional(parse), accepts + ", or none"
    return declare(default, help, section, parse=parse, accepts=accepts, **properties)


def count(default: int | None, help: str, section: str, *, least: int = 0, **properties: Any) -> Any:
    accepts = "a whole number" if least == 0 else f"a whole number above {least - 1}"
    parse: Callable[[object], Any] = units.integer(least)
    if default is None:
        parse, accepts = units.optional(parse), accepts + ", or none"
    return declare(default, help, section, parse=parse, **{"accepts": accepts} | properties)


def size(default: int, help: str, section: str, **properties: Any) -> Any:
    accepts = 'bytes, or a size such as "500KB", "32MB" or "1GiB"'
    return declare(default, help, section, parse=units.size, accepts=accepts, **properties)


def switch(default: bool, help: str, section: str, **properties: Any) -> Any:
    return declare(default, help, section, parse=units.boolean, accepts="true or false", **properties)


def choice(default: str, words: tuple[str, ...], help: str, section: str, **properties: Any) -> Any:
    accepts = f"{', '.join(words[:-1])} or {words[-1]}"
    return declare(default, help, section, parse=units.one_of(*words), **{"accepts": accepts} | properties)


def lines(accepts: str, help: str, section: str, **properties: Any) -> Any:
    return declare((), help, section, parse=units.lines, accepts=accepts, **properties)
