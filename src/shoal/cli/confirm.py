"""Confirmation of what ends other people's work: asked on a terminal, given with --yes elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shoal.cli.console import print_line
from shoal.cli.hints import pasteable
from shoal.config.load import Settings
from shoal.errors import UsageError

if TYPE_CHECKING:
    from shoal.view.end_notice import EndNotice

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(command: F) -> F:
    return click.option("--yes", is_flag=True, help="End a run on a shared queue without asking.")(command)


def end_confirmation(settings: Settings, yes: bool) -> Callable[[EndNotice], None] | None:
    """Who is to be asked or told before a run ends: nobody on a queue that is a file of this machine."""
    if settings.state_file is not None:
        return None
    return announce_end if yes else confirm_end


def confirm_end(notice: EndNotice) -> None:
    """Ask before a run is ended; raises unless somebody agrees."""
    undo = pasteable(notice.undo)
    if not sys.stdin.isatty():
        raise UsageError(f"this would end {notice}, and nobody is there to confirm", hint=f"add --yes. {undo}")
    announce_end(notice)
    click.confirm("End it?", abort=True, err=True)


def announce_end(notice: EndNotice) -> None:
    print_line(f"This ends {notice}. Its records are kept.", sys.stderr)
    print_line(pasteable(notice.undo), sys.stderr)
