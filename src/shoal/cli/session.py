"""shoal session list, show, renew and import."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from shoal import app
from shoal.cli.command import Command, Group
from shoal.cli.console import clean, count, print_fields, print_json, print_line, print_table
from shoal.cli.hints import print_hint
from shoal.cli.options import as_json, click_options
from shoal.commands.action_log import user_name
from shoal.config.load import Settings, did_you_mean
from shoal.control.actions import UserActions
from shoal.control.session_actions import cookies_of, import_session, renew_session
from shoal.errors import UsageError
from shoal.fetch.sessions.exported import MAX_FILE
from shoal.queue.base import Queue
from shoal.view.formatting import format_duration, local_time
from shoal.view.sessions import LOGINS, SessionView, describe_session, session_views, waiting_words

T = TypeVar("T")
UNREADABLE = "cannot be read on this machine: its session_key is another, or missing"
NONE = "No sessions here: describe one in [sessions] of shoal.toml."


@click.group(
    cls=Group,
    examples="""
    shoal session list                      who is logged in, and what waits
    shoal session renew shop                log in anew
    shoal session import shop cookies.txt   go on as your browser, logged in
    shoal run books.py --session shop
    """,
)
def session() -> None:
    """Sessions that all workers share: who is logged in, since when, and who must do something.

    Cookies, tokens and passwords are never shown.
    """


@session.command(name="list", cls=Command, examples="shoal session list")
@as_json
@click_options("look")
def list_sessions(settings: Settings, as_json: bool) -> int:
    """List sessions: of this machine, and of the fleet."""
    views, now = _with_queue(settings, lambda queue: _look(queue, settings))
    if as_json:
        print_json([_document(one) for one in views])
        return 0
    if not views:
        print_hint(NONE)
        return 0
    rows = [
        (
            clean(one.name),
            describe_session(one, now),
            clean(", ".join(one.hosts)),
            clean(one.exit or "direct"),
            count(one.workers),
            count(one.waiting),
            clean(one.error) or ("" if one.here else "not of this machine"),
        )
        for one in views
    ]
    print_table(
        ("session", "state", "hosts", "exit", "workers", "waiting", "last error"), rows, right="workers waiting"
    )
    for one in views:
        if one.hint:
            print_hint(f"{clean(one.name)}: {one.hint}")
    return 0


@session.command(cls=Command, examples="shoal session show shop")
@click.argument("name")
@as_json
@click_options("look")
def show(settings: Settings, name: str, as_json: bool) -> int:
    """Show one session: where it may be used, how one logs in, and how that went."""

    async def work(queue: Queue) -> tuple[SessionView, int, str]:
        views, now = await _look(queue, settings)
        found = next((one for one in views if one.name == name), None)
        if found is None:
            hint = did_you_mean(name, [one.name for one in views]) if views else NONE
            raise UsageError(f"there is no session {name}", hint=hint)
        cookies = await cookies_of(queue, settings, name)
        if cookies is None:
            return found, now, UNREADABLE if found.state == "in" else ""
        ends = min((one.expires for one in cookies if one.expires is not None), default=None)
        until = f"; the first expires in {format_duration(max(0.0, ends - time.time()))}" if ends is not None else ""
        return found, now, f"{count(len(cookies))}{until}"

    one, now, cookies = _with_queue(settings, work)
    if as_json:
        print_json(_document(one))
        return 0
    pairs: list[tuple[str, object]] = [
        ("session", clean(one.name)),
        ("state", describe_session(one, now)),
        ("hosts", clean(", ".join(one.hosts))),
        ("exit", clean(one.exit or "direct")),
        ("login", LOGINS[one.login] if one.here else "not of this machine"),
        ("cookies", cookies),
        ("since", local_time(one.made_at) if one.made_at else ""),
        ("logins", f"{count(one.logins)}" + (f"; {count(one.failures)} failed in a row" if one.failures else "")),
        ("last error", clean(one.error)),
        ("next login", f"in {format_duration((one.retry_at - now) / 1e6)}" if one.retry_at else ""),
        ("workers", count(one.workers)),
        ("waiting", waiting_words(one)),
    ]
    print_fields([pair for pair in pairs if pair[1] != ""])
    if one.hint:
        print_hint(one.hint)
    return 0


@session.command(cls=Command, examples="shoal session renew shop")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click_options("look")
def renew(settings: Settings, names: tuple[str, ...]) -> int:
    """Log in anew: the next worker that needs the session does, and pages that wait for it go on."""

    async def work(queue: Queue) -> int:
        waiting = 0
        for name in names:
            await renew_session(queue, UserActions(queue, user_name(), "command"), settings, name)
            waiting += sum(one.waiting for one in await session_views(queue, settings) if one.name == name)
        return waiting

    waiting = _with_queue(settings, work)
    said = f"waiting for it: {count(waiting, 'page')}" if waiting else "nothing waits for it now"
    print_line(f"{', '.join(map(clean, names))}: the next worker that needs it logs in; {said}.")
    return 0


@session.command(
    name="import",
    cls=Command,
    examples="""
    shoal session import shop cookies.txt
    shoal session import shop state.json     Playwright's storage_state
    """,
)
@click.argument("name")
@click.argument("file", metavar="FILE")
@click_options("look")
def import_cookies(settings: Settings, name: str, file: str) -> int:
    """Go on as a browser that is logged in: FILE holds the cookies that it has exported; "-" is standard input.

    A cookies.txt, the JSON of a cookie extension, or the storage state of Playwright. Delete the file afterwards.
    """
    data = _read(file)

    async def work(queue: Queue) -> int:
        actor = UserActions(queue, user_name(), "command")
        found = await import_session(queue, actor, settings, name, data)
        left = [f"{count(found.expired)} had expired"] if found.expired else []
        left += [f"{count(found.elsewhere)} of other hosts"] if found.elsewhere else []
        print_line(
            f"{clean(name)}: {count(found.cookies, 'cookie')} imported"
            + (f", and what scripts keep of {count(found.origins, 'origin')}" if found.origins else "")
            + (f"; left out: {', '.join(left)}." if left else ".")
        )
        return 0

    return _with_queue(settings, work)


def _read(file: str) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read(MAX_FILE + 1)
        with Path(file).open("rb") as opened:
            return opened.read(MAX_FILE + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no file {file}", hint="export the cookies of your browser first") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint="check its permissions") from error


async def _look(queue: Queue, settings: Settings) -> tuple[list[SessionView], int]:
    return await session_views(queue, settings), await queue.now()


def _document(one: SessionView) -> dict[str, object]:
    return msgspec.structs.asdict(one) | {"hint": one.hint}


def _with_queue(settings: Settings, work: Callable[[Queue], Awaitable[T]]) -> T:
    async def opened() -> T:
        async with app.opened_queue(settings, hurry=True) as queue:
            return await work(queue)

    return asyncio.run(opened())
