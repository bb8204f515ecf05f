"""Request ids: what a claim or push is repeated by; those made by this process are told from others'."""

from __future__ import annotations

import itertools
import os
import secrets


class _Process:
    """What the ids of one process begin with, and how many it has made."""

    prefix = secrets.token_hex(8)
    numbers = itertools.count()


def _renew() -> None:
    _Process.prefix, _Process.numbers = secrets.token_hex(8), itertools.count()


os.register_at_fork(after_in_child=_renew)


def new_request_id() -> str:
    """An id that nobody has used; whoever repeats the request keeps it."""
    return f"{_Process.prefix}{next(_Process.numbers):016x}"


def is_made_here(request_id: str) -> bool:
    """Whether nobody else can have asked with it before."""
    return request_id.startswith(_Process.prefix)
