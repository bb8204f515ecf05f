"""Planted changes that an older edition would not understand, though nothing says so. They need a frozen worker."""

from __future__ import annotations

from mutants.mutant import Mutant

_FROZEN = "acceptance/test_frozen_worker.py"

MUTANTS = (
    Mutant(
        "a field of a message has another name",
        "core/task.py",
        "class LeasedTask(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):",
        'class LeasedTask(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename={"url": "address"}):',
        _FROZEN,
    ),
    Mutant(
        "keys of Redis have other names",
        "queue/redis/engine.py",
        'self.prefix = f"{{{server_url.namespace}}}:"',
        'self.prefix = f"{{{server_url.namespace}}}::"',
        _FROZEN,
    ),
    Mutant(
        "a server refuses what a newer client adds",
        "queue/wire.py",
        "            omit_defaults=True,\n",
        "            omit_defaults=True,\n            forbid_unknown_fields=True,\n",
        "unit/test_editions.py",
    ),
    Mutant(
        "a packed task cannot grow",
        "queue/redis/packing.py",
        "return msgspec.convert(fields[:count], kind)",
        "raise",
        "unit/test_editions.py",
    ),
    Mutant(
        "any server is spoken to, whatever it speaks",
        "queue/remote.py",
        "if info.protocol != PROTOCOL:",
        "if False:",
        "acceptance/test_remote_wire.py",
    ),
)
