"""Indexable: values whose fields are also read by name, as programs that expect a dict do."""

from __future__ import annotations

from typing import Any

import msgspec


class Indexable(msgspec.Struct, frozen=True):
    """stats["pending"] is stats.pending, and dict(stats) is all of it."""

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def keys(self) -> tuple[str, ...]:
        return self.__struct_fields__
