"""Request options from settings: headers, cookies, login and proxy, checked before the first request."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from shoal.config.load import Settings
from shoal.control.secret_policy import SecretPolicy, SubmittedAs
from shoal.core.block_rule import BY_BROWSER, exit_of_rule
from shoal.core.fetch_choice import HTTP
from shoal.core.lane import DIRECT
from shoal.core.request_header import names_identity, parse_header_line
from shoal.core.route import read_route
from shoal.core.sitemap import unmarked
from shoal.core.url import canonical
from shoal.errors import GiveUp, InvalidUrl, UsageError
from shoal.extract.scraper import Scraper
from shoal.fetch import proxy
from shoal.fetch.auth import authorization_header
from shoal.fetch.cookies import CookieJars as OwnSessions
from shoal.fetch.sessions.seal import SessionSeal
from shoal.fetch.tor.program import find_tor
from shoal.worker.task.request_builder import CookieStores, Identities, RequestBuilder, origin_of, proxy_origin

TOR_RELAYS = ("tor://relays",)  # of strangers, and the last of a circuit reads what is not encrypted


def request_builder_for(
    settings: Settings,
    scraper: Scraper,
    sessions: CookieStores | None = None,
    *,
    start: Iterable[str] | None = None,
    sent: SubmittedAs = None,
    connections: str = "",
    identities: Identities | None = None,
) -> RequestBuilder:
    """start: where the run begins, if not where its scraper says.

    sent: the run was sent by somebody else, with our own code or with a template of theirs.
    connections: the name of those that only this run uses, for requests that are not plain.
    """
    home = frozenset(_origins(scraper.start if start is None else start))
    if settings.auth and not home:
        raise UsageError("--auth needs start URLs to log in at", hint="name them in the scraper or template")
    if settings.proxy and settings.exit not in ("", DIRECT):
        raise UsageError("requests leave by a proxy or by an exit", hint="leave out --proxy or --exit")
    own_proxy = settings.secrets.get(settings.proxy.lower(), settings.proxy)
    known = settings.exits.get(settings.exit)
    believed = map(proxy_origin, known.proxies if known else filter(None, [own_proxy]))
    keys = SecretPolicy(settings, home, sent, believed)
    keys.check()
    if own_proxy:
        proxy.validate_proxy(own_proxy)
    try:
        headers = [parse_header_line(line) for line in settings.header]
        return RequestBuilder(
            timeout=settings.timeout,
            headers=tuple(pair for pair in headers if keys.shows_headers or not names_identity(pair[0])),
            auth=settings.auth,
            proxy=settings.proxy,
            secrets=settings.secrets,
            sessions=(sessions or OwnSessions()) if settings.cookies else None,
            is_own_origin=home.__contains__,
            authorization_header=authorization_header,
            may_use_secret=keys.allows,
            may_code_use_secret=keys.allows_code,
            connections=connections,
            cache=settings.cache_age,
            identities=identities,
            session=settings.session if identities is not None else "",
            exit_proxies={one.name: TOR_RELAYS if one.tor else one.proxies for one in settings.exits.values()},
        )
    except GiveUp as error:
        raise UsageError(str(error), hint="or name it in [secrets] of shoal.toml") from error


def check_sessions(settings: Settings) -> None:
    """Raise UsageError where a session is asked for that this machine cannot keep, or whose exit it does not have."""
    if settings.session and settings.session not in settings.sessions:
        known = ", ".join(settings.sessions) or "none"
        raise UsageError(
            f"there is no session called {settings.session} on this machine",
            hint=f"describe it in [sessions] of shoal.toml; known are: {known}",
        )
    for one in settings.sessions.values():
        if one.exit and one.exit != DIRECT and one.exit not in settings.exits:
            raise UsageError(
                f"the session {one.name} leaves by {one.exit}, and there is no exit of that name on this machine",
                hint="name its proxies in [exits] of shoal.toml",
            )
    if settings.sessions:
        SessionSeal(settings.session_key)


def check_exits(settings: Settings, scraper: Scraper) -> None:
    """Raise UsageError where pages are to be fetched by an exit that this machine does not have."""
    rules = tuple(map(read_route, settings.routes))
    by_rule = [name for it in rules for name in (it.exit or "", exit_of_rule(it.on_block or ""))]
    for name in (settings.exit, *scraper.exits, exit_of_rule(settings.on_block), *by_rule):
        if name and name != DIRECT and name not in settings.exits:
            known = ", ".join(settings.exits) or "none"
            raise UsageError(
                f"there is no exit called {name} on this machine",
                hint=f"name its proxies in [exits] of shoal.toml; known are: {known}",
            )
        tor = settings.exits[name].tor if name in settings.exits else None
        if tor is not None:
            find_tor(tor.program)


def check_steps(settings: Settings, scraper: Scraper | None) -> None:
    """Raise UsageError where a run says what a browser does on its pages, and none of them is fetched by one.

    scraper: None where its code is elsewhere. Handlers can ask for a browser while they run: whoever says that pages
    are fetched by plain requests, and gives steps all the same, means those.
    """
    if not settings.steps or settings.fetch != HTTP or _rules_name_browser(settings):
        return
    if scraper is None or scraper.may_use_browser:
        return
    from shoal.extract.template import TemplateScraper  # late: code needs none of it

    hint = "--fetch browser or --fetch auto (the setting fetch), or leave the steps out"
    if not isinstance(scraper, TemplateScraper):
        if settings.is_set("fetch"):
            return
        hint += "; --fetch http if handlers ask for a browser by themselves"
    raise UsageError("steps are taken by a browser, and these pages are fetched without one", hint=hint)


def _rules_name_browser(settings: Settings) -> bool:
    """Whether a route, or the rule for block pages, may have a page fetched by a browser."""
    rules = map(read_route, settings.routes)
    return settings.on_block == BY_BROWSER or any(
        it.on_block == BY_BROWSER or it.fetch not in ("", HTTP) for it in rules
    )


def _origins(start: Iterable[str]) -> Iterator[str]:
    for url in start:
        with contextlib.suppress(InvalidUrl):  # refused when the run begins
            yield origin_of(canonical(unmarked(url)))
