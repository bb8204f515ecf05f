"""Tokens: who may ask, kept in the queue as digests; the token itself is shown once and kept nowhere."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable
from hashlib import sha256

import msgspec

from shoal.errors import Usage
from shoal.queue.base import Paper, Queue

KIND = "token"
SCOPES = ("read", "operate", "admin", "work")
SETTING = "SHOAL_TOKEN"  # the name of the one that the settings hold
SHORTEST = 16  # characters of a token that somebody made up
MOST = 1_000
_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}").fullmatch


class Token(msgspec.Struct, frozen=True):
    name: str
    digest: str  # sha256, in hex
    scopes: tuple[str, ...]
    tail: str = ""  # its last characters, to tell it from others
    made_at: int = 0
    made_by: str = ""

    def document(self) -> dict[str, object]:
        """What people may see of it."""
        from shoal.view.words import stamp

        made = stamp(self.made_at) if self.made_at else None
        return {
            "name": self.name,
            "scopes": list(self.scopes),
            "ends_with": self.tail,
            "made_at": made,
            "made_by": self.made_by or None,
        }


def digest_of(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def matching(tokens: Iterable[Token], text: str) -> Token | None:
    """The token that this text is; takes the same time whichever it is not."""
    digest, found = digest_of(text), None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest):
            found = token
    return found


def of_settings(text: str) -> Token:
    """The token that the settings hold: it may do everything."""
    if len(text) < SHORTEST:
        raise Usage(
            f"the token of the settings has fewer than {SHORTEST} characters: it could be guessed",
            hint="a long random one: SHOAL_TOKEN=$(openssl rand -hex 24)",
        )
    return Token(SETTING, digest_of(text), ("admin", "work"))


def check_name(name: str) -> str:
    if not _name(name):
        raise Usage(f"{name!r} is no name for a token", hint="letters, digits, _ . @ and -: grafana")
    return name


def check_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(scopes))
    for scope in wanted:
        if scope not in SCOPES:
            raise Usage(f"there is no scope {scope}", hint="read, operate, admin or work")
    return wanted or ("read",)


async def add(queue: Queue, name: str, scopes: Iterable[str], made_by: str = "") -> tuple[Token, str]:
    """A new token, and its text, which is known only now."""
    check_name(name)
    wanted = check_scopes(scopes)
    if len(await queue.papers(KIND)) >= MOST:
        raise Usage(f"there are {MOST:,} tokens already", hint="shoal token list, shoal token remove NAME")
    text = "shoal_" + secrets.token_urlsafe(32)
    token = Token(name, digest_of(text), wanted, text[-4:], made_by=made_by)
    kept = await queue.swap(KIND, name, msgspec.json.encode(token).decode(), 0)
    if kept is None:
        raise Usage(f"there is a token {name} already", hint=f"shoal token remove {name}, or another name")
    return msgspec.structs.replace(token, made_at=kept.made_at), text


async def known(queue: Queue) -> list[Token]:
    """All tokens of the queue, by name."""
    return list(map(_read, await queue.papers(KIND)))


async def remove(queue: Queue, name: str) -> bool:
    """Whether there was one; who holds it is refused from the next second on."""
    while (paper := await queue.paper(KIND, name)) is not None:
        if await queue.swap(KIND, name, None, paper.version) is not None:
            return True
    return False


def _read(paper: Paper) -> Token:
    try:
        token = msgspec.json.decode(paper.text, type=Token)
    except msgspec.DecodeError:
        # Of another version: it opens nothing here, but where there is one, everybody is asked.
        token = Token(paper.name, "", ())
    return msgspec.structs.replace(token, made_at=paper.made_at)
