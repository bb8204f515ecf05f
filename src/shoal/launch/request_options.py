"""Request options from settings: headers, cookies, login and proxy, checked before the first request."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from shoal.config.load import Settings
from shoal.control.secret_policy import SecretPolicy, SubmittedAs
from shoal.core.request_header import parse_header_line
from shoal.core.url import canonical
from shoal.errors import GiveUp, InvalidUrl, UsageError
from shoal.extract.scraper import Scraper
from shoal.fetch import proxy
from shoal.fetch.auth import authorization_header
from shoal.fetch.cookies import CookieJars as OwnSessions
from shoal.worker.task.request_builder import CookieStores, RequestBuilder, origin_of


def request_builder_for(
    settings: Settings,
    scraper: Scraper,
    sessions: CookieStores | None = None,
    *,
    sent: SubmittedAs = None,
    connections: str = "",
) -> RequestBuilder:
    """sent: the run was sent by somebody else, with our own code or with a template of theirs.

    connections: the name of those that only this run uses, for requests that are not plain.
    """
    home = frozenset(_origins(scraper.start))
    if settings.auth and not home:
        raise UsageError("--auth needs start URLs to log in at", hint="name them in the scraper or template")
    keys = SecretPolicy(settings, home, sent)
    keys.check()
    if settings.proxy:
        proxy.validate_proxy(settings.secrets.get(settings.proxy.lower(), settings.proxy))
    try:
        return RequestBuilder(
            timeout=settings.timeout,
            headers=tuple(parse_header_line(line) for line in settings.header),
            auth=settings.auth,
            proxy=settings.proxy,
            secrets=settings.secrets,
            sessions=(sessions or OwnSessions()) if settings.cookies else None,
            is_own_origin=home.__contains__,
            authorization_header=authorization_header,
            may_use_secret=keys.allows,
            connections=connections,
        )
    except GiveUp as error:
        raise UsageError(str(error), hint="or name it in [secrets] of shoal.toml") from error


def _origins(start: Iterable[str]) -> Iterator[str]:
    for url in start:
        with contextlib.suppress(InvalidUrl):  # refused when the run begins
            yield origin_of(canonical(url))
