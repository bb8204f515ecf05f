"""Manner: how requests are to be dressed, from settings; wrong ones are refused before anything is asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from shoal.config import Settings
from shoal.control.keys import Keys, Sent
from shoal.core.url import canonical
from shoal.errors import GiveUp, InvalidUrl, Usage
from shoal.extract.scraper import Scraper
from shoal.fetch import proxy
from shoal.fetch.auth import credential
from shoal.fetch.cookies import Sessions as OwnSessions
from shoal.worker.manners import Manners, Sessions, origin_of


def manners_of(
    settings: Settings, scraper: Scraper, sessions: Sessions | None = None, *, sent: Sent = None
) -> Manners:
    """sent: the run was sent by somebody else, with our own code or with a template of theirs."""
    home = frozenset(_origins(scraper.start))
    if settings.auth and not home:
        raise Usage("--auth needs start addresses to log in at", hint="name them in the scraper or template")
    keys = Keys(settings, home, sent)
    keys.check()
    if settings.proxy:
        proxy.check(settings.secrets.get(settings.proxy.lower(), settings.proxy))
    try:
        return Manners(
            timeout=settings.timeout,
            headers=tuple(_header(line) for line in settings.header),
            auth=settings.auth,
            proxy=settings.proxy,
            secrets=settings.secrets,
            sessions=(sessions or OwnSessions()) if settings.cookies else None,
            at_home=home.__contains__,
            credential=credential,
            may=keys.may,
        )
    except GiveUp as error:
        raise Usage(str(error), hint="or name it in [secrets] of shoal.toml") from error


def _origins(start: Iterable[str]) -> Iterator[str]:
    for url in start:
        with contextlib.suppress(InvalidUrl):  # refused when the run begins
            yield origin_of(canonical(url))


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise Usage(f"--header {line!r} is not a header", hint='--header "Accept-Language: de"')
    return name.strip(), value.strip()
