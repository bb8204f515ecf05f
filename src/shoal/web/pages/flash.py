"""Flash messages: what an action has done, shown on the next page, with a way to undo it where there is one.

The cookie holds names and numbers, not text: the text is made here, so that nobody can forge a message.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
from fastapi import Request
from starlette.responses import Response

COOKIE = "shoal_flash"
MAX_AGE = 15  # seconds
MAX_COOKIE_LENGTH = 1_500


class FlashMessage(msgspec.Struct, frozen=True):
    action: str  # its name
    about: str = ""  # the run, host or worker
    count: int = -1  # of what was changed, where that is a number
    more: bool = False  # there was more than could be done in one go
    undo_fields: dict[str, str] = {}  # form fields of the undo button: the pace a host had
    continue_fields: dict[str, str] = {}  # form fields of the button that continues with the rest


def set_flash(response: Response, message: FlashMessage) -> None:
    value = urlsafe_b64encode(msgspec.json.encode(message)).decode()
    if len(value) <= MAX_COOKIE_LENGTH:
        response.set_cookie(COOKIE, value, max_age=MAX_AGE, httponly=True, samesite="strict")


def read_flash(request: Request) -> FlashMessage | None:
    value = request.cookies.get(COOKIE, "")
    if not value or len(value) > MAX_COOKIE_LENGTH:
        return None
    try:
        return msgspec.json.decode(urlsafe_b64decode(value), type=FlashMessage)
    except (ValueError, msgspec.DecodeError):
        return None


def clear_flash(response: Response) -> None:
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
