"""Command: a click command with examples, options in sections, and options whose value may be left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import click

from shoal.config.load import SETTINGS
from shoal.core.units import is_port_or_network

COMMAND_ARGS = "shoal.given"  # in the context: the words that followed the command's name
_SECTIONS = {(setting.name, setting.flag): setting.section for setting in SETTINGS.values()}
# Options whose value may be left out, and what can only be their value.
_OPTIONAL_VALUES: dict[str, Callable[[str], object]] = {
    "--allow-private": is_port_or_network,
    "--sitemap": re.compile(r"https?://\S+", re.IGNORECASE).fullmatch,
    "--dashboard": re.compile(r"([^\s/]+:)?[0-9]{1,5}").fullmatch,
}


class WithExamples(click.Command):
    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"], "max_content_width": 100})
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples.strip().splitlines():
                    formatter.write(" " * formatter.current_indent + example.strip() + "\n")


class Command(WithExamples):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[COMMAND_ARGS] = tuple(args)
        return super().parse_args(ctx, list(_with_values(args)))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and record[1]:
                section = _SECTIONS.get((param.name or "", param.opts[0]), "Options")
                sections.setdefault(section, []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)


class Group(WithExamples, click.Group):
    """A command that is a word in front of others."""


def _with_values(args: list[str]) -> Iterator[str]:
    """Give options that stand alone their value, so that they never swallow the argument that follows."""
    waiting = iter(args)
    for arg in waiting:
        if arg == "--":
            yield arg
            break
        if arg not in _OPTIONAL_VALUES:
            yield arg
            continue
        following = next(waiting, None)
        pairs = (following or "").split(",")
        if following is not None and all(_OPTIONAL_VALUES[arg](pair.strip()) for pair in pairs):
            yield f"{arg}={following}"
            continue
        yield f"{arg}=1"
        if following is not None:
            yield from _with_values([following, *waiting])
            return
    yield from waiting
