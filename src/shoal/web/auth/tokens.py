"""API tokens, stored in the queue as digests; the text of a token is shown once and stored nowhere."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable
from hashlib import sha256

import msgspec

from shoal.errors import UsageError
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Documents
from shoal.runs.documents import remove_document

SCOPES = ("read", "operate", "admin", "work")
SETTINGS_NAME = "SHOAL_TOKEN"  # the name of the one that the settings hold
MIN_LENGTH = 16  # characters of a token that somebody made up
MAX_TOKENS = 1_000
_is_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}").fullmatch


class Token(msgspec.Struct, frozen=True):
    name: str
    digest: str  # sha256, in hex
    scopes: tuple[str, ...]
    tail: str = ""  # its last characters, to tell it from others
    made_at: int = 0
    made_by: str = ""

    def document(self) -> dict[str, object]:
        """What people may see of it."""
        from shoal.view.formatting import iso_time

        made = iso_time(self.made_at) if self.made_at else None
        return {
            "name": self.name,
            "scopes": list(self.scopes),
            "ends_with": self.tail,
            "made_at": made,
            "made_by": self.made_by or None,
        }


def digest_of(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def find_matching(tokens: Iterable[Token], text: str) -> Token | None:
    """The token that this text is; takes the same time whichever it is not."""
    digest, found = digest_of(text), None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest):
            found = token
    return found


def settings_token(text: str) -> Token:
    """The token that the settings hold: it may do everything."""
    if len(text) < MIN_LENGTH:
        raise UsageError(
            f"the token in the settings has fewer than {MIN_LENGTH} characters: it could be guessed",
            hint="a long random one: SHOAL_TOKEN=$(openssl rand -hex 24)",
        )
    return Token(SETTINGS_NAME, digest_of(text), ("admin", "work"))


def checked_name(name: str) -> str:
    if not _is_name(name):
        raise UsageError(f"{name!r} is not a valid token name", hint="letters, digits, _ . @ and -: grafana")
    return name


def checked_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(scopes))
    for scope in wanted:
        if scope not in SCOPES:
            raise UsageError(f"there is no scope {scope}", hint="read, operate, admin or work")
    return wanted or ("read",)


async def add(queue: Documents, name: str, scopes: Iterable[str], made_by: str = "") -> tuple[Token, str]:
    """A new token, and its text, which is known only now."""
    checked_name(name)
    wanted = checked_scopes(scopes)
    if len(await queue.documents(kinds.TOKEN)) >= MAX_TOKENS:
        raise UsageError(f"there are {MAX_TOKENS:,} tokens already", hint="shoal token list, shoal token remove NAME")
    text = "shoal_" + secrets.token_urlsafe(32)
    token = Token(name, digest_of(text), wanted, text[-4:], made_by=made_by)
    kept = await queue.compare_and_swap(kinds.TOKEN, name, msgspec.json.encode(token).decode(), 0)
    if kept is None:
        raise UsageError(f"token {name} already exists", hint=f"shoal token remove {name}, or another name")
    return msgspec.structs.replace(token, made_at=kept.made_at), text


async def list_tokens(queue: Documents) -> list[Token]:
    """All tokens of the queue, by name."""
    return list(map(_read, await queue.documents(kinds.TOKEN)))


async def remove(queue: Documents, name: str) -> bool:
    """Whether there was one; who holds it is refused from the next second on."""
    return await remove_document(queue, kinds.TOKEN, name)


def _read(document: Document) -> Token:
    try:
        token = msgspec.json.decode(document.text, type=Token)
    except msgspec.DecodeError:
        # Of another version: it opens nothing here, but where there is one, everybody is asked.
        token = Token(document.name, "", ())
    return msgspec.structs.replace(token, made_at=document.made_at)
