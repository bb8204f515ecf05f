"""Cookies as browsers export them: cookies.txt, the JSON of extensions, and Playwright's storage state.

What a person has exported is read by a stranger's program as often as not: bounded, and every complaint says where.
No message holds a value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from shoal.errors import UsageError
from shoal.fetch.cookies import MAX_COOKIE, MAX_COOKIES, MAX_LIFETIME, Cookie
from shoal.fetch.sessions.identity import Storage

MAX_FILE = 5_000_000  # bytes
MAX_ITEMS = 5_000  # of one origin, of what scripts keep
HINT = "a cookies.txt, the JSON of a cookie extension, or Playwright's storage_state"
_HTTP_ONLY = "#HttpOnly_"
_domain_name = re.compile(r"\.?(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?|\[[0-9a-f:.]+\])").fullmatch
_control = re.compile(r"[\x00-\x1f\x7f]").search


class Exported(NamedTuple):
    cookies: tuple[Cookie, ...]
    storage: Storage
    expired: int  # cookies that are over


def read_exported(data: bytes, now: float) -> Exported:
    """The cookies of a file; raises UsageError."""
    if len(data) > MAX_FILE:
        raise UsageError(f"the file has more than {MAX_FILE:,} bytes", hint=HINT)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError("the file is not text", hint=HINT) from None
    if not text.strip():
        raise UsageError("the file is empty", hint=HINT)
    storage: Storage = {}
    if text.lstrip()[0] in "[{":
        cookies, storage = _read_json(text)
    else:
        cookies = list(_read_netscape(text))
    if not cookies and not storage:
        raise UsageError("there are no cookies in the file", hint=HINT)
    if len(cookies) > MAX_COOKIES:
        raise UsageError(f"the file has more than {MAX_COOKIES:,} cookies", hint="export those of one site")
    left = tuple(one for one in cookies if one.expires is None or one.expires > now)
    if not left and not storage:
        raise UsageError("all cookies in the file have expired", hint="log in with the browser, and export them again")
    capped = (
        one if one.expires is None else msgspec.structs.replace(one, expires=min(one.expires, now + MAX_LIFETIME))
        for one in left
    )
    return Exported(tuple(capped), storage, len(cookies) - len(left))


def _read_netscape(text: str) -> Iterator[Cookie]:
    """Seven columns with tabs between them: domain, whether for all below it, path, secure, expiry, name, value."""
    for number, line in enumerate(text.splitlines(), 1):
        where = f"line {number}"
        line = line.removeprefix(_HTTP_ONLY) if line.startswith(_HTTP_ONLY) else line
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split("\t")
        if len(parts) != 7:
            raise UsageError(f"{where}: not seven columns with tabs between them", hint=HINT)
        domain, below, path, secure, expiry, name, value = parts
        if below.upper() not in ("TRUE", "FALSE") or secure.upper() not in ("TRUE", "FALSE"):
            raise UsageError(f"{where}: the second and fourth column are TRUE or FALSE", hint=HINT)
        yield _cookie(where, name, value, domain, path, below.upper() == "FALSE", secure.upper() == "TRUE", expiry)


def _read_json(text: str) -> tuple[list[Cookie], Storage]:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        raise UsageError("the file is not valid JSON", hint=HINT) from None
    origins: Any = []
    if isinstance(found, dict):
        if "cookies" not in found:
            raise UsageError("the JSON has no cookies", hint=HINT)
        found, origins = found["cookies"], found.get("origins", [])
    if not isinstance(found, list) or not isinstance(origins, list):
        raise UsageError("the JSON is not a list of cookies", hint=HINT)
    return [_json_cookie(one, f"cookie {number}") for number, one in enumerate(found, 1)], _storage(origins)


def _json_cookie(given: Any, where: str) -> Cookie:
    if not isinstance(given, dict):
        raise UsageError(f"{where}: not an object", hint=HINT)
    domain, path = given.get("domain", given.get("host", "")), given.get("path", "/")
    expiry = given.get("expirationDate", given.get("expires", given.get("expiry")))
    if given.get("session") is True:
        expiry = None
    host_only = given.get("hostOnly", not str(domain).startswith("."))
    if not isinstance(host_only, bool) or not isinstance(given.get("secure", False), bool):
        raise UsageError(f"{where}: hostOnly and secure are true or false", hint=HINT)
    return _cookie(
        where, given.get("name"), given.get("value"), domain, path, host_only, given.get("secure", False), expiry
    )


def _cookie(
    where: str, name: Any, value: Any, domain: Any, path: Any, host_only: bool, secure: bool, expiry: Any
) -> Cookie:
    if not all(isinstance(one, str) for one in (name, value, domain, path)):
        raise UsageError(f"{where}: name, value, domain and path are texts", hint=HINT)
    domain = domain.strip().lower()
    if len(domain) > 255 or not _domain_name(domain):
        raise UsageError(f"{where}: that is not a domain", hint=HINT)
    if not name and not value:
        raise UsageError(f"{where}: it has neither name nor value", hint=HINT)
    if _control(name) or _control(value) or ";" in name or ";" in value or "=" in name:
        raise UsageError(f"{where}: the name or the value has characters that no cookie has", hint=HINT)
    if len(name.encode("utf-8", "replace")) + len(value.encode("utf-8", "replace")) > MAX_COOKIE:
        raise UsageError(f"{where}: it has more than {MAX_COOKIE:,} bytes", hint=HINT)
    if not path.startswith("/") or _control(path):
        raise UsageError(f"{where}: its path does not begin with /", hint=HINT)
    try:
        value.encode()
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{where}: the name or the value has characters that no cookie has", hint=HINT) from None
    return Cookie(name, value, domain.strip("."), path, host_only, secure, _expiry(expiry, where), 0)


def _expiry(value: Any, where: str) -> float | None:
    """Seconds since 1970; nothing, 0 and less: as long as the browser runs."""
    if value is None or value == "":
        return None
    try:
        found = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise UsageError(f"{where}: its expiry is not a time in seconds", hint=HINT)
    return found if found > 0 else None


def _storage(origins: list[Any]) -> Storage:
    found: Storage = {}
    for number, one in enumerate(origins, 1):
        items = one.get("localStorage", []) if isinstance(one, dict) else None
        if not isinstance(one, dict) or not isinstance(one.get("origin"), str) or not isinstance(items, list):
            raise UsageError(f"origin {number}: not as Playwright writes it", hint=HINT)
        pairs = [(it.get("name"), it.get("value")) if isinstance(it, dict) else (None, None) for it in items]
        if len(pairs) > MAX_ITEMS or not all(isinstance(a, str) and isinstance(b, str) for a, b in pairs):
            raise UsageError(f"origin {number}: not as Playwright writes it", hint=HINT)
        if pairs and one["origin"].startswith(("http://", "https://")):
            found[one["origin"].rstrip("/")] = {str(a): str(b) for a, b in pairs}
    return found
