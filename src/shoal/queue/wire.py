"""The queue's verbs as messages, made from the contract's signatures so that both sides always agree."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import msgspec

from shoal.queue.base import Promises, Queue

# Raised when what is sent means something else. What is new is a field or a verb that an older side may do without:
# fields it does not know it passes over, and a verb it does not know it refuses by name.
PROTOCOL = 1
MEDIA_TYPE = "application/msgpack"
PATH = "/api/v1/queue"
MAX_WAIT = 5.0  # seconds for which `wait` keeps a request open
MAX_ADD = 2_000  # tasks of one message; a client sends more as several
PAGE_SIZE = 1_000  # of a listing that can be gone on with; a client asks for more as several
MAX_LIMIT = 10_000  # of one that cannot
MAX_RUNS_PER_CALL = 1_000  # runs whose accounts one message asks for
PAGED_VERBS = {  # listings by pages: where the next one begins, and what says so
    "runs": ("before", "id"),
    "list_tasks": ("after", "id"),
    "records": ("after", "seq"),
    "export_run": ("after", "number"),
    "outbox": ("after", "seq"),
    "cache_list": ("before", "seq"),
}
LIMITS = dict.fromkeys((*PAGED_VERBS, "claim"), PAGE_SIZE)  # what `limit` may be, where it is not MAX_LIMIT
_LOCAL_VERBS = ("close",)  # of whoever has opened it, not of the queue behind


class ServerInfo(msgspec.Struct, frozen=True):
    """What a server says of its queue."""

    shoal: str
    protocol: int
    promises: Promises
    backend: str = ""  # what it keeps the queue in; servers of an older version do not say


class Verb:
    """One verb: its parameters as one message, its answer as another."""

    def __init__(self, name: str) -> None:
        function = getattr(Queue, name)
        hints = get_type_hints(function)
        self.name = name
        self.answer: Any = hints.pop("return")
        parameters = [it for it in inspect.signature(function).parameters.values() if it.name != "self"]
        self.positional = tuple(it.name for it in parameters if it.kind is not it.KEYWORD_ONLY)
        self.defaults = {it.name: it.default for it in parameters if it.default is not it.empty}
        self.message = msgspec.defstruct(
            f"{name.title().replace('_', '')}Message",
            [
                (it.name, hints[it.name]) if it.default is it.empty else (it.name, hints[it.name], it.default)
                for it in parameters
            ],
            frozen=True,
            kw_only=True,
            omit_defaults=True,
        )
        self._decode = msgspec.msgpack.Decoder(self.message).decode
        self._decode_answer = msgspec.msgpack.Decoder(self.answer).decode

    def arguments(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name."""
        if len(args) > len(self.positional):
            raise TypeError(f"{self.name} takes {len(self.positional)} positional arguments")
        if unknown := named.keys() - self.message.__annotations__.keys():
            raise TypeError(f"{self.name} has no parameter {min(unknown)}")
        return dict(zip(self.positional, args, strict=False)) | named

    def pack(self, args: tuple[Any, ...], named: dict[str, Any]) -> bytes:
        arguments = self.arguments(args, named)
        return msgspec.msgpack.encode({name: _to_plain(value) for name, value in arguments.items()})

    def unpack(self, data: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments; msgspec.ValidationError for what is not a message of this verb."""
        arguments = msgspec.structs.asdict(self._decode(data))
        return [arguments.pop(name) for name in self.positional], arguments

    def unpack_answer(self, data: bytes) -> Any:
        return self._decode_answer(data)


def _to_plain(value: Any) -> Any:
    """Anything that can be walked through, as a list: callers may give sets, views and the like."""
    if isinstance(value, str | bytes | int | float | list | tuple | set | frozenset | dict | msgspec.Struct):
        return value
    if value is None:
        return None
    if hasattr(value, "items"):
        return {key: _to_plain(item) for key, item in value.items()}
    return list(value)


def _names() -> list[str]:
    return [name for name, _ in inspect.getmembers(Queue, inspect.iscoroutinefunction) if name not in _LOCAL_VERBS]


VERBS: dict[str, Verb] = {name: Verb(name) for name in _names()}
