"""shoal token add, list and remove."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from shoal import app
from shoal.cli.command import Command, Group
from shoal.cli.console import clean, count, local_time, print_json, print_line, print_table
from shoal.cli.hints import print_hint
from shoal.cli.options import as_json, click_options
from shoal.commands.action_log import log_command, user_name
from shoal.config.load import Settings
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.web.auth import tokens

T = TypeVar("T")


@click.group(
    cls=Group,
    examples="""
    shoal token add grafana                  may look
    shoal token add ops --scope operate      read and operate
    shoal token list
    shoal token remove grafana
    """,
)
def token() -> None:
    """Manage access tokens for the server: who may look, and who may act.

    Without any token the server answers only to this machine. Once there is one, everybody needs
    one. They are stored in the queue as hashes, so every server of that queue knows them.
    """


@token.command(
    cls=Command,
    examples="""
    shoal token add grafana
    shoal token add ops --scope operate
    shoal token add workers --scope read --scope work
    """,
)
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(tokens.SCOPES),
    multiple=True,
    help="read (look), operate (submit, pause, revive …), admin (tokens, purge), work (act as a worker);"
    " default: read; may be given several times.",
)
@as_json
@click_options("look")
def add(settings: Settings, name: str, scopes: tuple[str, ...], as_json: bool) -> int:
    """Create a token and print it once: it cannot be shown again."""
    made, text = _with_queue(settings, lambda queue: _add(queue, name, scopes))
    if as_json:
        print_json(made.document() | {"token": text})
        return 0
    print_line(text)
    print_line(f"This is token {made.name} ({', '.join(made.scopes)}). Save it: it is not shown again.")
    print_line("In a browser: paste it at the login. Elsewhere: Authorization: Bearer TOKEN")
    return 0


@token.command(name="list", cls=Command, examples="shoal token list")
@as_json
@click_options("look")
def list_tokens(settings: Settings, as_json: bool) -> int:
    """List tokens by name, not their values."""
    known = _with_queue(settings, tokens.list_tokens)
    if as_json:
        print_json([it.document() for it in known])
        return 0
    if not known:
        print_hint("No tokens: the server answers only to this machine.   shoal token add NAME")
        return 0
    rows = [
        [clean(it.name), ", ".join(it.scopes), f"…{it.tail}", local_time(it.made_at), clean(it.made_by)] for it in known
    ]
    print_table(["TOKEN", "MAY", "ENDS WITH", "MADE", "BY"], rows)
    return 0


@token.command(cls=Command, examples="shoal token remove grafana")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click_options("look")
def remove(settings: Settings, names: tuple[str, ...]) -> int:
    """Revoke tokens: their holders are refused, and sessions begun with them end."""

    async def work(queue: Queue) -> list[str]:
        unknown = []
        for name in names:
            if await tokens.remove(queue, name):
                await log_command(queue, "remove token", name)
            else:
                unknown.append(name)
        return unknown

    unknown = _with_queue(settings, work)
    if unknown:
        raise UsageError(f"there is no token {unknown[0]}", hint="shoal token list")
    print_line(f"{count(len(names), 'token')} removed.")
    return 0


async def _add(queue: Queue, name: str, scopes: tuple[Any, ...]) -> tuple[tokens.Token, str]:
    made = await tokens.add(queue, name, scopes, user_name())
    await log_command(queue, "add token", name)
    return made


def _with_queue(settings: Settings, work: Callable[[Queue], Awaitable[T]]) -> T:
    async def opened() -> T:
        async with app.opened_queue(settings, small=True, hurry=True) as queue:
            return await work(queue)

    return asyncio.run(opened())
