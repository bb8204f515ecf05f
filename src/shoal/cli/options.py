"""The options of commands, made from the one declaration of settings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import click

from shoal.config import SETTINGS, SETTINGS_FILE, Setting, load
from shoal.core import measure

F = TypeVar("F", bound=Callable[..., Any])
_WORDS = {
    "queue": "FILE|URL",
    "synchronous": "full|normal",
    "allow_private": "[LIST]",
    "dashboard": "[PORT]",
    "listen": "[ADDRESS:]PORT",
    "token": "TOKEN",
}
# What else a control room asks for: it keeps the queue in order, and works itself when asked to.
_SERVED = frozenset(("State", "Logs", "name", "scrapers", "allow_private", "workers", "concurrency"))


def click_options(
    scope: str, *, without: Collection[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Offer the settings of a scope ("run", "serve"; "look": where the state is), passed as `settings`.

    without: names of settings whose flags mean something else to this command.
    """
    offered = [it for it in SETTINGS.values() if _offered(it, scope) and it.name not in without]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_settings(config: str | None, **given: Any) -> Any:
            flags = {setting.name: given.pop(setting.name) for setting in offered}
            flags = {name: value for name, value in flags.items() if value != ()}  # () is "not given"
            return command(settings=load(flags, file=config), **given)

        decorated: Callable[..., Any] = with_settings
        decorated = click.option(
            "--config", metavar="FILE", help=f"Settings file; {SETTINGS_FILE} in this folder unless given."
        )(decorated)
        for setting in reversed(offered):
            decorated = _option(setting)(decorated)
        return decorated

    return decorate


def _offered(setting: Setting, scope: str) -> bool:
    if scope == "serve":
        return setting.everywhere or setting.served or setting.section in _SERVED or setting.name in _SERVED
    return setting.everywhere or (scope == "run" and not setting.served)


def _option(setting: Setting) -> Callable[[F], F]:
    if setting.switch:
        names = setting.flag if setting.everywhere else f"{setting.flag}/--no-{setting.flag[2:]}"
        return click.option(names, setting.name, default=None, is_flag=True, help=setting.help)
    several = setting.parse is measure.lines
    return click.option(
        setting.flag, setting.name, metavar=_metavar(setting), help=_help(setting), multiple=several
    )


def _metavar(setting: Setting) -> str:
    accepts = setting.accepts
    if accepts.startswith("seconds"):
        return "TIME"
    if setting.parse is measure.size:
        return "SIZE"
    if accepts.startswith(("a whole number", "a number", "days", "bytes per")):
        return "N"
    if " or " in accepts and len(accepts) < 40:
        return accepts.replace(", ", "|").replace(" or ", "|")
    return _WORDS.get(setting.name, "TEXT")


def _help(setting: Setting) -> str:
    if setting.default in ("", None, 0, 0.0, ()):
        return setting.help
    return f"{setting.help} [{_worded(setting)}]"


def _worded(setting: Setting) -> str:
    default = setting.default
    if setting.accepts.startswith("seconds"):
        return f"{default:g}s"
    if setting.parse is measure.size:
        divisor, unit = next(
            pair for pair in ((10**9, "GB"), (10**6, "MB"), (1000, "KB")) if default >= pair[0]
        )
        return f"{default // divisor}{unit}"
    return str(default)


def as_json(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")(command)
