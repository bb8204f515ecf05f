"""Glance: lists that are shown beside other things, which people can do without while a shard is away."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from shoal.errors import QueueUnavailable

T = TypeVar("T")


async def glance(asked: Awaitable[list[T]]) -> list[T]:
    """The list; none where not every shard can be asked, which `Stats.away` says."""
    try:
        return await asked
    except QueueUnavailable:
        return []
