"""Sessions as people write them: names, hosts, and how one logs in; in the settings file or a cluster file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from shoal.config.setting import read_value
from shoal.core import units
from shoal.core.browser_step import BrowserStep, read_steps
from shoal.core.glob import escaped
from shoal.core.lane import is_exit_name
from shoal.core.request_header import header_problem
from shoal.core.session_options import NAME_RULE, LoggedInCheck, Login, SessionOptions, is_session_name
from shoal.core.url import canonical, lane_of
from shoal.errors import InvalidUrl, UsageError

MAX_SESSIONS = 40
MAX_TEXT = 4_000  # letters of a selector, field, body or pattern
EXAMPLE = 'a table such as: [sessions.shop] with hosts = ["shop.example"], secret = "shop" and a login'
LOGIN_EXAMPLE = 'login = {form = "https://shop.example/login", fields = {user = "{user}", password = "{password}"}}'
_KEYS = ("hosts", "secret", "exit", "headers", "delay", "rate", "in_flight", "failures", "max_age", "login", "check")
_LOGIN_KEYS = {"form": ("fields", "selector"), "json": ("body", "token", "header"), "browser": ("steps",)}
_CHECK_KEYS = ("url", "present", "absent", "status", "redirect")
_PLACEHOLDERS = ("user", "password")
_placeholder = re.compile(r"\{(?:user|password)\}").sub
_braces = re.compile(r"\{([A-Za-z_]\w*)\}").findall
_DURATION = 'seconds, or a duration such as "12h"'


def read_sessions(table: object, where: str, secret_hosts: Mapping[str, tuple[str, ...]]) -> dict[str, SessionOptions]:
    """The sessions of a table by name. where: for messages. secret_hosts: those that secrets are bound to."""
    if not isinstance(table, Mapping):
        raise UsageError(f"{where} must hold names and tables", hint=EXAMPLE)
    if len(table) > MAX_SESSIONS:
        raise UsageError(f"{where} has {len(table)} sessions: {MAX_SESSIONS} is the most", hint="leave some out")
    return {
        str(name): _read_session(str(name), value, f"{where}: {name}", secret_hosts) for name, value in table.items()
    }


def _read_session(name: str, value: object, where: str, secret_hosts: Mapping[str, tuple[str, ...]]) -> SessionOptions:
    if not is_session_name(name):
        raise UsageError(f"{where}: that cannot be the name of a session", hint=NAME_RULE)
    given = _table(value, where, _KEYS)
    login = _read_login(given["login"], f"{where}: login") if "login" in given else Login()
    hosts = _hosts(given.get("hosts", ()), f"{where}: hosts")
    if not hosts and login.url:
        hosts = (lane_of(login.url),)
    if not hosts:
        raise UsageError(f"{where}: it belongs to no host", hint='hosts = ["shop.example", "*.shop.example"]')
    secret = str(_read(units.text, given.get("secret", ""), f"{where}: secret", "the name of a secret")).lower()
    exit = str(_read(units.text, given.get("exit", ""), f"{where}: exit", "the name of an exit, or direct"))
    if exit and not is_exit_name(exit):
        raise UsageError(f"{where}: exit {exit!r} cannot be the name of an exit", hint="a name of [exits], or direct")
    session = SessionOptions(
        name,
        hosts,
        secret,
        secret_hosts.get(secret) if secret else None,
        exit,
        tuple(_header(line, f"{where}: headers") for line in _lines(given.get("headers", ()), f"{where}: headers")),
        _delay(given, where),
        _optional(units.integer(0), given, "in_flight", where, "a whole number; 0 is no limit"),
        _optional(units.integer(1), given, "failures", where, "a whole number above 0") or 3,
        _optional(units.seconds(zero=True), given, "max_age", where, _DURATION) or 0.0,
        login,
        _read_check(given["check"], f"{where}: check") if "check" in given else LoggedInCheck(),
    )
    _check_hosts(session, where)
    return session


def _check_hosts(session: SessionOptions, where: str) -> None:
    """What names a URL is on hosts of the session, and where its secret goes is somewhere that it may."""
    for key, url in (("login", session.login.url), ("check", session.check.url)):
        if url and not session.covers(url):
            raise UsageError(f"{where}: {key}: {lane_of(url)} is not among its hosts", hint="add it to hosts")
    uses_secret = any(_names_secret(text) for text in _texts(session.login))
    if uses_secret and not session.secret:
        raise UsageError(
            f"{where}: the login names {{user}} or {{password}}, and there is no secret", hint='secret = "shop"'
        )
    if uses_secret and not session.may_send_secret(session.login.url):
        raise UsageError(
            f"{where}: the secret {session.secret} is not for {lane_of(session.login.url)}",
            hint=f"add that host to hosts of {session.secret} in [secrets]",
        )


def _texts(login: Login) -> Sequence[str]:
    return (*login.fields.values(), login.body, *login.steps)


def _read_login(value: object, where: str) -> Login:
    given = _table(value, where, (*_LOGIN_KEYS, *(key for keys in _LOGIN_KEYS.values() for key in keys)))
    kinds = [kind for kind in _LOGIN_KEYS if kind in given]
    if len(kinds) != 1:
        raise UsageError(f"{where}: give one of form, json or browser, with its URL", hint=LOGIN_EXAMPLE)
    kind = kinds[0]
    for key in given:
        if key != kind and key not in _LOGIN_KEYS[kind]:
            raise UsageError(
                f"{where}: {key} does not go with {kind}", hint=f"known are: {', '.join(_LOGIN_KEYS[kind])}"
            )
    url = _url(given[kind], f"{where}: {kind}")
    if kind == "form":
        fields = given.get("fields")
        if not isinstance(fields, Mapping) or not fields:
            raise UsageError(f"{where}: fields must hold names and texts", hint=LOGIN_EXAMPLE)
        filled = {str(name): _text(text, f"{where}: fields: {name}") for name, text in fields.items()}
        _check_placeholders(filled.values(), f"{where}: fields")
        return Login("form", url, filled, _text(given.get("selector", ""), f"{where}: selector"))
    if kind == "json":
        return _read_json_login(given, url, where)
    steps = read_value(read_steps, given.get("steps"), f"{where}: steps", "steps, such as: fill #user = {user}")
    if not steps:
        raise UsageError(f"{where}: it has no steps", hint='steps = ["fill #user = {user}", "press Enter"]')
    _check_placeholders([step.text for step in steps if step.action == "fill"], f"{where}: steps")
    return Login("browser", url, steps=tuple(map(str, steps)))


def _read_json_login(given: Mapping[str, Any], url: str, where: str) -> Login:
    if "body" not in given:
        raise UsageError(f"{where}: it has no body", hint='body = {user = "{user}", password = "{password}"}')
    try:
        body = msgspec.json.encode(given["body"]).decode()
    except (TypeError, ValueError):
        raise UsageError(f"{where}: body cannot be sent as JSON", hint="names, texts and numbers") from None
    _check_placeholders(_leaves(given["body"]), f"{where}: body")
    if len(body) > MAX_TEXT:
        raise UsageError(f"{where}: body has more than {MAX_TEXT:,} letters", hint="send less")
    token, header = _text(given.get("token", ""), f"{where}: token"), _text(given.get("header", ""), f"{where}: header")
    if header and not token:
        raise UsageError(f"{where}: the header has no token to send", hint='token = "access_token"')
    if token and not header:
        header = "Authorization: Bearer {token}"
    if header:
        if "{token}" not in header:
            raise UsageError(
                f"{where}: the header does not say where the token goes", hint='header = "X-Token: {token}"'
            )
        _header(header, f"{where}: header")
    return Login("json", url, body=body, token=token, header=header)


def _read_check(value: object, where: str) -> LoggedInCheck:
    given = _table(value, where, _CHECK_KEYS)
    status = given.get("status", LoggedInCheck().status)
    codes = status if isinstance(status, list | tuple) else [status]
    if not all(isinstance(code, int) and not isinstance(code, bool) and 200 <= code <= 599 for code in codes):
        raise UsageError(
            f"{where}: status {status!r} is not understood", hint="a status such as 401, or a list of them"
        )
    return LoggedInCheck(
        _url(given["url"], f"{where}: url") if "url" in given else "",
        _selector(given.get("present", ""), f"{where}: present"),
        _selector(given.get("absent", ""), f"{where}: absent"),
        tuple(codes),
        escaped(_text(given.get("redirect", ""), f"{where}: redirect")),
    )


def filled_in(text: str, secret: str) -> str:
    """A text with the two parts of a secret in place of their names."""
    user, colon, password = secret.partition(":")
    values = {"{user}": user if colon else "", "{password}": password if colon else secret}
    return _placeholder(lambda found: values[found[0]], text)


def filled_in_json(value: Any, secret: str) -> Any:
    """The same for all texts of a value."""
    if isinstance(value, dict):
        return {name: filled_in_json(one, secret) for name, one in value.items()}
    if isinstance(value, list):
        return [filled_in_json(one, secret) for one in value]
    return filled_in(value, secret) if isinstance(value, str) else value


def steps_with_secret(lines: Sequence[str], secret: str, hosts: tuple[str, ...]) -> tuple[BrowserStep, ...]:
    """Steps as they are taken: what is filled in from a secret is so on its hosts alone, and never shown."""
    return tuple(
        replace(step, text=filled_in(step.text, secret), only_at=hosts)
        if step.action == "fill" and _names_secret(step.text)
        else step
        for step in read_steps(lines)
    )


def _names_secret(text: str) -> bool:
    return any(f"{{{name}}}" in text for name in _PLACEHOLDERS)


def _check_placeholders(texts: Iterable[str], where: str) -> None:
    """A name in braces that means nothing is a slip of the pen; other braces are text."""
    for text in texts:
        for name in _braces(text):
            if name not in _PLACEHOLDERS:
                raise UsageError(f"{where}: {{{name}}} is not known", hint="known are: {user}, {password}")


def _leaves(value: object) -> list[str]:
    if isinstance(value, Mapping):
        return [text for one in value.values() for text in _leaves(one)]
    if isinstance(value, list | tuple):
        return [text for one in value for text in _leaves(one)]
    return [value] if isinstance(value, str) else []


def _table(value: object, where: str, known: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} must hold names and values", hint=f"known are: {', '.join(dict.fromkeys(known))}")
    for key in value:
        if key not in known:
            raise UsageError(f"{where}: {key!r} is not known", hint=f"known are: {', '.join(dict.fromkeys(known))}")
    return dict(value)


def _hosts(value: object, where: str) -> tuple[str, ...]:
    from shoal.config.load import is_host_pattern

    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(
        isinstance(it, str) and is_host_pattern(it.lower()) for it in names
    ):
        raise UsageError(
            f"{where}: {value!r} is not understood", hint='hosts such as ["shop.example", "*.shop.example"]'
        )
    return tuple(str(it).lower() for it in names)


def _url(value: object, where: str) -> str:
    try:
        found = canonical(_text(value, where))
    except InvalidUrl as error:
        raise UsageError(f"{where}: {error}", hint="a URL such as https://shop.example/login") from None
    if not found.startswith(("http://", "https://")):
        raise UsageError(
            f"{where}: {str(value)[:100]!r} is not an http URL", hint="a URL such as https://shop.example/login"
        )
    return found


def _selector(value: object, where: str) -> str:
    text = _text(value, where)
    if text:
        from selectolax.lexbor import LexborHTMLParser, SelectolaxError

        try:
            LexborHTMLParser("<p>").css_first(text)
        except (SelectolaxError, ValueError):
            raise UsageError(f"{where}: {text!r} is not a selector", hint="a CSS selector such as form.login") from None
    return text


def _text(value: object, where: str) -> str:
    text = str(_read(units.text, value, where, "text"))
    if len(text) > MAX_TEXT:
        raise UsageError(f"{where}: more than {MAX_TEXT:,} letters", hint="shorten it")
    return text


def _lines(value: object, where: str) -> tuple[str, ...]:
    found: tuple[str, ...] = read_value(units.lines, value, where, 'lines such as "Accept-Language: de"')
    return found


def _header(line: str, where: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    pair = name.strip(), value.strip()
    if not colon or not pair[0]:
        raise UsageError(f"{where}: {line[:50]!r} is not a header", hint='a line such as "Accept-Language: de"')
    if problem := header_problem(*pair):
        raise UsageError(f"{where}: {problem}", hint="leave it out")
    return pair


def _delay(given: Mapping[str, Any], where: str) -> float | None:
    if "delay" in given and "rate" in given:
        raise UsageError(f"{where}: delay and rate say the same", hint="keep one of them: rate = 2 is delay = 0.5")
    if "rate" in given:
        return 1.0 / float(_read(units.rate, given["rate"], f"{where}: rate", "a rate such as 30/m"))
    found: float | None = _optional(units.seconds(zero=True), given, "delay", where, _DURATION)
    return found


def _optional(parse: Callable[[object], Any], given: Mapping[str, Any], key: str, where: str, accepts: str) -> Any:
    return read_value(parse, given[key], f"{where}: {key}", accepts) if key in given else None


def _read(parse: Callable[[object], Any], value: object, where: str, accepts: str) -> Any:
    return read_value(parse, value, where, accepts)
