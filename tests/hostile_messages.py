"""Messages that no worker of ours would send: each is refused, whichever way it comes to the queue."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.core.run import TASK_BITS, NewRun
from shoal.core.task import Outcome, Task
from shoal.queue.base import PageState, TaskFilter
from shoal.queue.values import NewCacheEntry

URL = "https://shop.example/"
MIB = 1 << 20
TOO_LARGE = 2**64 - 1
TASK = Task(URL, "shop.example", b"d" * 16)


def entry(**changed: Any) -> NewCacheEntry:
    return NewCacheEntry(**({"key": b"k" * 16, "host": "h", "url": URL, "data": b"x"} | changed))


MESSAGES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *(("cache_put", (it, MIB), {}) for it in (entry(key=b""), entry(key=b"k" * MIB), entry(host="h" * MIB))),
    *(("cache_put", (it, MIB), {}) for it in (entry(url="u" * MIB), entry(fresh_for=float("nan")))),
    ("cache_put", (entry(fresh_for=float("inf")), MIB), {}),
    ("cache_get", ([b"k"] * 21,), {}), ("cache_get", ([b"k"] * 1001,), {"bodies": False}),
    ("cache_clear", (), {"keys": [b"x"] * 20_000}),
    ("failures", (["u"] * 20_000,), {}), ("forget_failures", (["u"] * 20_000,), {}),
    ("save_page_states", (1, [PageState(2 << TASK_BITS, b"x")]), {}), ("save_page_states", (2**63, []), {}),
    ("save_page_states", (1, [PageState((1 << TASK_BITS) + 1, b"x" * 40 * MIB)]), {}),
    ("save_page_states", (1, [PageState((1 << TASK_BITS) + 1, b"x")] * 1001), {}),
    ("page_states", (1,), {"tasks": [1] * 20_000}), ("page_states", (TOO_LARGE,), {}),
    ("add", (1, [TASK] * 2_001), {}), ("add", (TOO_LARGE, [TASK]), {}),
    ("push", (1, [TASK] * 1_001, "w"), {}), ("push", (TOO_LARGE, [TASK], "w"), {}),
    ("start_run", (NewRun("books", "key", spec={"api": 1}),), {}),
    ("set_run", (TOO_LARGE, "paused"), {}),
    ("settle", ([Outcome(1, 1, "released")] * 1_001,), {}), ("settle", ([Outcome(TOO_LARGE, 1, "released")],), {}),
    ("extend", ("w", {TOO_LARGE: ()}), {}), ("extend", ("w", dict.fromkeys(range(10001), ())), {}),
    ("extend", ("w", {1: list(range(10_001))}), {}),
    ("reap", ({"w": list(range(10_001))},), {}),
    ("stats", (TOO_LARGE,), {}), ("stats_of", ([1] * 1_001,), {}), ("ids", (1, [b"x" * 16] * 10_001), {}),
    ("list_tasks", (TOO_LARGE,), {}), ("revive", (1, TaskFilter(ids=tuple(range(10_001)))), {}),
]  # fmt: skip
# What only the queue's own side may see.
RESERVED: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("document", ("token", "x"), {}), ("documents", ("session-key",), {}),
    ("save_document", ("webhook.key", "x", "y"), {}),
    ("compare_and_swap", ("actions", "x", "y", 0), {}), ("compare_and_swap", ("letter-copies", "cursor", "y", 0), {}),
]  # fmt: skip
# Nothing that any verb could read, with the name that it is sent under.
NO_VERBS: list[tuple[str, bytes]] = [
    ("claim", b""), ("claim", b"\xc1"), ("extend", b"\x93"), ("reap", msgspec.msgpack.encode({"dead_workers": 1})),
    ("claim", msgspec.msgpack.encode({"worker": 1, "limit": "x"})), ("diagnose", b"\xff"), ("wait", b"x"),
    ("claim", msgspec.msgpack.encode({"worker": b"\xff", "limit": 1})),
    ("close", b"\x80"), ("__class__", b"\x80"), ("call", b"\x80"), ("x" * 100, b"\x80"),
]  # fmt: skip
