"""Said: what an action has done, told on the next page, with the way back where there is one.

It travels in a cookie, as names of things and not as words: words are made here, so that nobody can put
others into our mouth.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
from fastapi import Request
from starlette.responses import Response

COOKIE = "shoal_said"
LASTS = 15  # seconds
LONGEST = 1_500


class Said(msgspec.Struct, frozen=True):
    deed: str  # its name
    about: str = ""  # the run, host or worker
    count: int = -1  # of what was changed, where that is a number
    more: bool = False  # there was more than could be done in one go
    back: dict[str, str] = {}  # what the way back has to be told: the pace a host had
    on: dict[str, str] = {}  # what has to be told to go on with the rest


def say(response: Response, said: Said) -> None:
    value = urlsafe_b64encode(msgspec.json.encode(said)).decode()
    if len(value) <= LONGEST:
        response.set_cookie(COOKIE, value, max_age=LASTS, httponly=True, samesite="strict")


def heard(request: Request) -> Said | None:
    value = request.cookies.get(COOKIE, "")
    if not value or len(value) > LONGEST:
        return None
    try:
        return msgspec.json.decode(urlsafe_b64decode(value), type=Said)
    except (ValueError, msgspec.DecodeError):
        return None


def forget(response: Response) -> None:
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
