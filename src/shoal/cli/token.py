"""shoal token add, list and remove."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from shoal import app
from shoal.cli.command import Command, Group
from shoal.cli.options import as_json, click_options
from shoal.cli.show import clean, count, document, line, moment, table
from shoal.config import Settings
from shoal.errors import Usage
from shoal.queue.base import Queue
from shoal.web import tokens

T = TypeVar("T")


@click.group(
    cls=Group,
    examples="""
    shoal token add grafana                  may look
    shoal token add ops --scope operate      may look and act
    shoal token list
    shoal token remove grafana
    """,
)
def token() -> None:
    """Tokens for the control room: who may look, and who may act.

    Without any token the control room is open, to this machine alone. With the first one everybody needs
    one. They are kept in the queue as digests, so that every server of it knows them.
    """


@token.command(
    cls=Command,
    examples="""
    shoal token add grafana
    shoal token add ops --scope operate
    shoal token add crew --scope read --scope work
    """,
)
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(tokens.SCOPES),
    multiple=True,
    help="read (look), operate (submit, pause, revive …), admin (tokens, purge), work (speak as a worker"
    " does); read unless given, may be given several times.",
)
@as_json
@click_options("look")
def add(settings: Settings, name: str, scopes: tuple[str, ...], as_json: bool) -> int:
    """Make a token and print it, once: it cannot be shown again."""
    made, text = _with(settings, lambda queue: tokens.add(queue, name, scopes, _who()))
    if as_json:
        document(made.document() | {"token": text})
        return 0
    line(text)
    line(f"This is token {made.name} ({', '.join(made.scopes)}). Keep it: it is not shown again.")
    line("In a browser: paste it where you are asked. Elsewhere: Authorization: Bearer TOKEN")
    return 0


@token.command(name="list", cls=Command, examples="shoal token list")
@as_json
@click_options("look")
def listing(settings: Settings, as_json: bool) -> int:
    """The tokens there are, by name; not what they are."""
    known = _with(settings, tokens.known)
    if as_json:
        document([it.document() for it in known])
        return 0
    if not known:
        line("No tokens: the control room is open, to this machine alone.   shoal token add NAME")
        return 0
    rows = [
        [clean(it.name), ", ".join(it.scopes), f"…{it.tail}", moment(it.made_at), clean(it.made_by)]
        for it in known
    ]
    table(["TOKEN", "MAY", "ENDS WITH", "MADE", "BY"], rows)
    return 0


@token.command(cls=Command, examples="shoal token remove grafana")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click_options("look")
def remove(settings: Settings, names: tuple[str, ...]) -> int:
    """Take tokens back: whoever holds them is refused, sessions that began with them end."""

    async def work(queue: Queue) -> list[str]:
        return [name for name in names if not await tokens.remove(queue, name)]

    unknown = _with(settings, work)
    if unknown:
        raise Usage(f"there is no token {unknown[0]}", hint="shoal token list")
    line(f"{count(len(names), 'token')} removed.")
    return 0


def _with(settings: Settings, work: Callable[[Queue], Awaitable[T]]) -> T:
    async def opened() -> T:
        queue = await app.open_queue(settings, small=True)
        try:
            return await work(queue)
        finally:
            await queue.close()

    return asyncio.run(opened())


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
