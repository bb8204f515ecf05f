"""ShardMap: which shards there are, and which of them has a host. A document on every shard; the newest counts."""

from __future__ import annotations

import msgspec

from shoal.core.lane import host_of_lane, lane_without_cache
from shoal.core.partition import rendezvous
from shoal.core.queue_url import MAX_SHARDS
from shoal.errors import QueueRefused, UsageError
from shoal.queue.base import Queue
from shoal.queue.document_kinds import SHARD_MAP

NAME = "map"


class ShardMap(msgspec.Struct, frozen=True, omit_defaults=True):
    version: int
    shards: tuple[str, ...]  # by index, without logins
    joining: int = 0  # the last so many are being added: lanes are moved to them, and nothing else goes there yet
    moving: bool = False  # what was found meanwhile is still being brought after them

    @property
    def settled(self) -> int:
        """How many shards have lanes of their own."""
        return len(self.shards) - self.joining


def read_map(text: str) -> ShardMap:
    try:
        read = msgspec.json.decode(text, type=ShardMap)
    except msgspec.MsgspecError as error:
        raise QueueRefused(f"the map of the shards cannot be read: {error}", hint="see `shoal doctor`") from error
    if not 1 <= len(read.shards) <= MAX_SHARDS or not 0 <= read.joining < len(read.shards):
        raise QueueRefused("the map of the shards is not one", hint="see `shoal doctor`")
    return read


async def check_is_whole(queue: Queue) -> None:
    """UsageError for one shard by itself: whoever works on it would keep links there that belong on others."""
    if queue.promises.apart:
        return
    found = await queue.document(SHARD_MAP, NAME)
    shards = read_map(found.text).shards if found is not None else ()
    if len(shards) > 1:
        words = f"this is one shard of a queue of {len(shards)}"
        raise UsageError(words, hint=f"name all of them: --queue shards:{','.join(shards)}")


def write_map(shard_map: ShardMap) -> str:
    return msgspec.json.encode(shard_map).decode()


def shard_of(lane: str, shards: int) -> int:
    """The shard of a lane among so many: all lanes of a host are on the same one."""
    return rendezvous(host_of_lane(lane_without_cache(lane)), _EQUAL[:shards]) if shards > 1 else 0


_EQUAL = (1.0,) * MAX_SHARDS
