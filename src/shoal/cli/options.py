"""The options of commands, made from the one declaration of settings."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import click

from shoal.cli.console import print_line
from shoal.cli.hints import pasteable, queue_option, remember_queue
from shoal.config.load import SETTINGS, SETTINGS_FILE, Setting, load
from shoal.config.queue_token import unencrypted_note
from shoal.config.server_variables import variables_note
from shoal.core import units
from shoal.core.sitemap import LOOK_FOR, MARK
from shoal.errors import ActionRequired

F = TypeVar("F", bound=Callable[..., Any])
_METAVARS = {
    "queue": "FILE|URL",
    "synchronous": "full|normal",
    "allow_private": "[LIST]",
    "dashboard": "[PORT]",
    "listen": "[ADDRESS:]PORT",
    "token": "TOKEN",
    "has": "NAME",
    "routes": "FILE",
}


def click_options(scope: str, *, without: Collection[str] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Offer the settings of a scope ("run", "serve"; "look": where the state is), passed as `settings`.

    without: names of settings whose flags mean something else to this command.
    """
    offered = [it for it in SETTINGS.values() if _offered(it, scope) and it.name not in without]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_settings(config: str | None, **given: Any) -> Any:
            flags = {setting.name: given.pop(setting.name) for setting in offered}
            flags = {name: value for name, value in flags.items() if value != ()}  # () is "not given"
            if "routes" in flags:
                from shoal.config.route_file import read_route_files  # late: few commands have any

                flags["routes"] = read_route_files(flags["routes"])
            settings = load(flags, file=config)
            remember_queue(settings)
            for note in filter(None, (variables_note(settings), unencrypted_note(settings))):
                print_line(note, sys.stderr)
            try:
                return command(settings=settings, **given)
            except ActionRequired as error:
                error.hint = pasteable(error.hint, queue_option(settings))
                raise

        decorated: Callable[..., Any] = with_settings
        decorated = click.option(
            "--config", metavar="FILE", help=f"Settings file; default: {SETTINGS_FILE} in this folder."
        )(decorated)
        for setting in reversed(offered):
            decorated = _option(setting)(decorated)
        return decorated

    return decorate


def _offered(setting: Setting, scope: str) -> bool:
    return setting.commands == "all" or scope in setting.commands.split()


def _option(setting: Setting) -> Callable[[F], F]:
    if setting.is_boolean:
        names = setting.flag if setting.commands == "all" else f"{setting.flag}/--no-{setting.flag[2:]}"
        return click.option(names, setting.name, default=None, is_flag=True, help=setting.help)
    several = isinstance(setting.default, tuple)
    return click.option(setting.flag, setting.name, metavar=_metavar(setting), help=_help(setting), multiple=several)


def _metavar(setting: Setting) -> str:
    accepts = setting.accepts
    if accepts.startswith("seconds"):
        return "TIME"
    if setting.parse is units.size:
        return "SIZE"
    if accepts.startswith(("a whole number", "a number", "days", "bytes per")):
        return "N"
    if " or " in accepts and len(accepts) < 40:
        return accepts.replace(", ", "|").replace(" or ", "|")
    return _METAVARS.get(setting.name, "TEXT")


def _help(setting: Setting) -> str:
    if setting.default in ("", None, 0, 0.0, ()):
        return setting.help
    return f"{setting.help} [{_format_default(setting)}]"


def _format_default(setting: Setting) -> str:
    default = setting.default
    if setting.accepts.startswith("seconds"):
        return f"{default:g}s"
    if setting.parse is units.size:
        divisor, unit = next(pair for pair in ((10**9, "GB"), (10**6, "MB"), (1000, "KB")) if default >= pair[0])
        return f"{default // divisor}{unit}"
    return str(default)


def field_option(help: str) -> Callable[[F], F]:
    return click.option("-f", "--field", "given_fields", multiple=True, metavar="NAME=SELECTOR", help=help)


def columns_option(command: F) -> F:
    return click.option(
        "--with-columns", is_flag=True, help="Also put the list's other columns and the line number into the records."
    )(command)


def sitemap_option(command: F) -> F:
    return click.option(
        "--sitemap",
        "sitemaps",
        multiple=True,
        metavar="[URL]",
        help="Also visit what a sitemap or feed lists; without a URL those of the sites it starts from.",
    )(command)


def sitemap_as_target(target: str | None, sitemaps: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Where nothing else is given, the first sitemap that is named is what to begin with."""
    if target or not sitemaps or sitemaps[0] == LOOK_FOR:
        return target, sitemaps
    return f"{MARK}{sitemaps[0]}", sitemaps[1:]


def as_json(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")(command)
