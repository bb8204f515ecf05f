"""Hints: commands that people are told, as they can be pasted: with the queue that was named by a flag."""

from __future__ import annotations

import re
import shlex
from typing import TextIO

import click

from shoal.cli.console import print_line
from shoal.config.load import Settings
from shoal.control.join_command import has_secret, queue_given_by_flag

QUEUE_OPTION = "shoal.queue_option"  # in the context: what commands need to reach the same queue
# Commands that look into a queue; those with a second word have their options after it.
_COMMAND = re.compile(
    r"\bshoal (?:hosts (?:set|park|release)|schedule (?:add|list|show|pause|resume|remove|run)"
    r"|token (?:add|list|remove)|scale (?:auto|set|status|history)"
    r"|(?:status|watch|runs|why|dead|revive|pause|resume|cancel|workers|worker|drain"
    r"|hosts|advice|export|metrics|serve|doctor|resources)(?![\w-]))"
)


def remember_queue(settings: Settings) -> None:
    """From now on, what the running command prints as a hint names the queue if this command did."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[QUEUE_OPTION] = queue_option(settings)


def queue_option(settings: Settings) -> str:
    """ " --queue …", quoted; empty where the queue is found without it, or its URL holds a password."""
    if not settings.queue or not queue_given_by_flag(settings) or has_secret(settings.queue):
        return ""
    return f" --queue {shlex.quote(settings.queue)}"


def pasteable(text: str, option: str | None = None) -> str:
    """The same with the queue in every command that needs it and does not have it."""
    if option is None:
        context = click.get_current_context(silent=True)
        option = str(context.meta.get(QUEUE_OPTION, "")) if context is not None else ""
    if not option:
        return text
    return "\n".join(
        line if "--queue" in line else _COMMAND.sub(lambda found: found[0] + option, line) for line in text.split("\n")
    )


def print_hint(text: str, stream: TextIO | None = None) -> None:
    """Never wrapped: a command that is broken over lines cannot be pasted."""
    print_line(pasteable(text), stream)
