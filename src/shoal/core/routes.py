"""Routes: the rules of a run, checked against each other, and compiled so that a link costs next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from shoal.core.capability import BROWSER, capability_names, exit_capability
from shoal.core.glob import Glob, url_glob
from shoal.core.host_pattern import covers_host
from shoal.core.lane import DIRECT, Pace, host_of_lane, lane_name, lane_without_cache, session_lane, session_of_lane
from shoal.core.needs import MAX_NEEDS_SETS
from shoal.core.route import Route, read_route
from shoal.core.session import sharing
from shoal.core.session_options import SessionOptions, session_capability
from shoal.core.task import RequestOptions, Task
from shoal.core.task_kind import is_aside, is_fetched
from shoal.core.url import lane_of
from shoal.errors import UsageError

MAX_ROUTES = 200
MAX_LANES = 10_000  # whose decisions are remembered
ExitOf = Callable[[str, str], str]  # likewise, the name of an exit
FetchOf = Callable[[str, str], str]  # by URL and kind: "http", "browser", "auto", or "" where nobody has said
_ANY_TEXT = "\0"  # in place of the stars of a glob that another is compared with


class _UrlRule(NamedTuple):
    literal: str  # the longest text that every match contains: most URLs are ruled out by it
    matches: Callable[[str], object]
    is_whole: bool  # compared with the whole URL, not with its path
    route: Route


_Decision = tuple[tuple[_UrlRule, ...], Route | None]  # of a host: rules by URL to try, and what holds otherwise


class RouteTrial(NamedTuple):
    """What became of one rule when a URL was looked up."""

    number: int
    route: Route
    verdict: str  # "wins", or why it does not


def with_fetcher(task: Task, fetch_of: FetchOf | None = None) -> Task:
    """A task that is fetched by a browser needs a worker that has one."""
    options = task.request_options
    fetch = (options.fetch if options is not None else "") or (fetch_of(task.url, task.kind) if fetch_of else "")
    if fetch != BROWSER or is_aside(task.kind):
        return task
    needs = capability_names({*task.needs, BROWSER})
    return msgspec.structs.replace(
        task, needs=needs, request_options=msgspec.structs.replace(options or RequestOptions(), fetch=BROWSER)
    )


def with_exit(task: Task, exit_of: ExitOf | None = None, *, has_own_pace: bool = True) -> Task:
    """A task whose requests leave by an exit needs a worker that has it, and waits in a lane of that exit.

    has_own_pace: hosts are asked by each exit as if there were no other.
    """
    options = task.request_options or RequestOptions()
    exit = options.exit or (exit_of(task.url, task.kind) if exit_of and not options.proxy else "")
    if not exit:
        return task
    host, needs = host_of_lane(task.lane), task.needs
    if exit != DIRECT:
        needs = capability_names({*needs, exit_capability(exit)})
    lane = lane_name(host, exit) if has_own_pace and exit != DIRECT else host
    if session_of_lane(task.lane):
        lane = task.lane
    return msgspec.structs.replace(
        task, lane=lane, needs=needs, request_options=msgspec.structs.replace(options, exit=exit)
    )


def with_session(task: Task, sessions: Mapping[str, SessionOptions], default: str = "") -> Task:
    """A task of a session that the fleet shares needs a worker that has it, and waits in a lane of that session.

    default: of pages that are on one of its hosts, where nobody has named another; of all pages, where this machine
    does not have it and cannot know.
    """
    options = task.request_options or RequestOptions()
    host, own = host_of_lane(lane_without_cache(task.lane)), options.session or options.rule_session
    name = own or default
    found = sessions.get(name)
    if not name or (own and found is None) or (not own and found is not None and not found.covers_host(host)):
        return task
    exit = found.exit if found is not None else ""
    return msgspec.structs.replace(
        task,
        lane=session_lane(host, name),
        needs=capability_names({*task.needs, session_capability(name)}),
        request_options=msgspec.structs.replace(
            options,
            rule_session="" if options.session else name,
            exit=exit or options.exit,
            proxy="" if exit else options.proxy,
        ),
    )


class Routes:
    """Rules in their order; the first that matches wins. False if there is none."""

    def __init__(
        self,
        lines: Iterable[str | Route] = (),
        fetch_of: FetchOf | None = None,
        exit_of: ExitOf | None = None,
        *,
        exits_have_own_pace: bool = True,
        sessions: Mapping[str, SessionOptions] | None = None,
        session: str = "",
    ) -> None:
        """fetch_of, exit_of, session: for pages of which neither they nor a rule say so.

        sessions: those that this machine has, by name.
        """
        self._sessions = sessions or {}
        self._session = session
        self.routes = tuple(map(read_route, lines))
        self._fetch_of = fetch_of
        self._exit_of = exit_of
        self._exits_have_own_pace = exits_have_own_pace
        self._may_need_browser = fetch_of is not None or any(route.fetch == BROWSER for route in self.routes)
        self._rules = tuple(None if it.is_by_host else _url_rule(it) for it in self.routes)
        self._by_lane: dict[str, _Decision] = {}

    def __bool__(self) -> bool:
        return bool(self.routes or self._session) or self._fetch_of is not None or self._exit_of is not None

    def find(self, url: str, lane: str) -> Route | None:
        """The rule for a canonical URL on a lane."""
        rules, route = self._by_lane.get(lane) or self._decide(lane)
        if rules:
            path = url[url.index("/", 8) :]
            for rule in rules:
                if rule.literal in url and _matches(rule, url, path):
                    return rule.route
        return route

    def admit(self, task: Task, *, keep_priority: bool = False, keep_ack: bool = False) -> Task:
        """A task as the rule for its URL has it; typed tasks without a URL have none."""
        if not is_fetched(task.kind):
            return task
        route = self.find(task.url, task.lane) if self.routes else None
        if route is not None:
            task = route.applied(task, keep_priority=keep_priority, keep_ack=keep_ack)
        if self._session or (self._sessions and task.request_options is not None):
            task = with_session(task, self._sessions, self._session)
        if self._exit_of is not None or task.request_options is not None:
            task = with_exit(task, self._exit_of, has_own_pace=self._exits_have_own_pace)
        if not self._may_need_browser and task.request_options is None:
            return task
        return with_fetcher(task, self._fetch_of)

    def pace(self, lane: str, usual: Pace) -> Pace:
        """What the run asks of a lane: by the first rule for its host, whatever rules by URL come before it."""
        host = host_of_lane(lane)
        if session := self._sessions.get(session_of_lane(lane)):
            return _session_pace(session, self._sessions.values(), host, self.pace(host, usual))
        for route in self.routes:
            if route.is_by_host and covers_host(route.match, host):
                spacing, limit = route.spacing, route.in_flight
                return Pace(
                    usual.spacing if spacing is None else spacing, usual.max_in_flight if limit is None else limit
                )
        return usual

    def explain(self, url: str) -> list[RouteTrial]:
        """What each rule makes of a canonical URL."""
        trials: list[RouteTrial] = []
        winner = 0
        for number, (route, rule) in enumerate(zip(self.routes, self._rules, strict=True), 1):
            if route.host and not covers_host(route.host, lane_of(url)):
                verdict = "another host"
            elif rule is not None and not _matches(rule, url, url[url.index("/", 8) :]):
                verdict = "another URL"
            elif winner:
                verdict = f"matches, but rule {winner} comes first"
            else:
                verdict, winner = "wins", number
            trials.append(RouteTrial(number, route, verdict))
        return trials

    def _decide(self, lane: str) -> _Decision:
        host, by_url, by_host = host_of_lane(lane), list[_UrlRule](), None
        for route, rule in zip(self.routes, self._rules, strict=True):
            if route.host and not covers_host(route.host, host):
                continue
            if rule is None:
                by_host = route  # it takes all that is left
                break
            by_url.append(rule)
        if len(self._by_lane) >= MAX_LANES:
            self._by_lane.clear()
        decision = self._by_lane[lane] = tuple(by_url), by_host
        return decision


def route_lines(value: object) -> tuple[str, ...]:
    """Rules as somebody wrote them, checked: a list, or a text with a rule a line. UsageError names the rule."""
    if isinstance(value, str):
        value = value.replace(" | ", "\n").splitlines()
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    if all(isinstance(one, str) for one in value):
        return _lines_of_texts(tuple(value))
    return _lines(value)


@lru_cache(maxsize=16)  # settings are read several times on their way to a worker
def _lines_of_texts(texts: tuple[str, ...]) -> tuple[str, ...]:
    return _lines(texts)


def _lines(rules: Sequence[object]) -> tuple[str, ...]:
    reaches: list[_Reach] = []
    for number, one in enumerate(rules, 1):
        if isinstance(one, str) and (not one.strip() or one.lstrip().startswith("#")):
            continue
        try:
            reach = _reach(read_route(one))
            _check_reached(reaches, reach)
        except ValueError:
            raise UsageError(f"rule {number}: {one!r} is not a line of text", hint="remove what is not text") from None
        except UsageError as error:
            raise UsageError(f"rule {number}: {error}", hint=error.hint) from None
        reaches.append(reach)
        if len(reaches) > MAX_ROUTES:
            raise UsageError(f"there are more than {MAX_ROUTES} rules", hint="combine some of them with *")
    if len({reach.route.needs for reach in reaches if reach.route.needs}) > MAX_NEEDS_SETS:
        raise UsageError(f"the rules ask for more than {MAX_NEEDS_SETS} combinations of needs", hint="use fewer")
    return tuple(str(reach.route) for reach in reaches)


class _Reach(NamedTuple):
    """What a rule matches, worked out once: each is compared with all before it."""

    route: Route
    host: str  # its own host pattern; empty: none
    hosts: str  # a host pattern that matches every host it is for
    kind: str  # "host", "path" or "url"
    matches: Callable[[str], object]
    text: str  # its glob, with a mark in place of each star


def _reach(route: Route) -> _Reach:
    kind = "host" if route.is_by_host else "url" if "://" in route.match else "path"
    url, host = route.url, route.host
    hosts = host or "*"
    if kind == "url":
        named = url.partition("://")[2].partition("/")[0]
        hosts = "*" if "*" in named else named
    return _Reach(route, host, hosts, kind, Glob(url).fullmatch, url.replace("*", _ANY_TEXT))


def _check_reached(earlier: Sequence[_Reach], last: _Reach) -> None:
    """Refuse a rule that an earlier one leaves nothing to, as far as their patterns tell."""
    match = last.route.match
    for one in earlier:
        if one.route.match == match:
            raise UsageError(f"{match} has a rule already: {one.route}", hint="make one rule of both")
        if one.kind not in ("host", last.kind) or (one.host and not covers_host(one.host, last.hosts)):
            continue
        if one.kind == "host" or one.matches(last.text):
            raise UsageError(
                f"{match} is never reached: {one.route.match} comes first and matches all of it",
                hint=f"move it above {one.route.match}",
            )


def _session_pace(session: SessionOptions, others: Iterable[SessionOptions], host: str, usual: Pace) -> Pace:
    """Its own, or its part of the host's: sessions behind one exit are one visitor to a site's own limits."""
    parts = max(1, sharing(session, others, host))
    limit = max(1, usual.max_in_flight // parts) if usual.max_in_flight else 0
    return Pace(
        usual.spacing * parts if session.delay is None else session.delay,
        limit if session.in_flight is None else session.in_flight,
    )


def _url_rule(route: Route) -> _UrlRule:
    literal = max(route.url.split("*"), key=len)
    return _UrlRule(literal, url_glob(route.url).fullmatch, "://" in route.match, route)


def _matches(rule: _UrlRule, url: str, path: str) -> object:
    if rule.is_whole:
        return rule.matches(url)
    return rule.matches(path) or ("?" in path and rule.matches(path.partition("?")[0]))
