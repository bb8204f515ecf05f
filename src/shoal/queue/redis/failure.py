"""Failure: what the server or the way to it says, in our words."""

from __future__ import annotations

from shoal.errors import Act, QueueFull, QueueReadOnly, QueueRefused, QueueUnavailable
from shoal.queue.redis.address import Address

# Refusals that time heals: of a server that starts, is busy, or hands over to another.
_PASSING = ("LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "READONLY")
_NOT_LET_IN = ("NOAUTH", "WRONGPASS", "NOPERM")


def passes(error: Exception) -> bool:
    return str(error).startswith(_PASSING)


def is_replica(error: Exception) -> bool:
    return str(error).startswith("READONLY")


def translated(where: Address, error: Exception) -> Act:
    """The one mapping from the server's errors to ours."""
    text = str(error)
    code = text.split(" ", 1)[0]
    if code == "OOM":
        return QueueFull(
            f"the memory of Redis at {where} is full (maxmemory)",
            hint="CONFIG SET maxmemory to more, or keep runs for fewer days (--retention); nothing is lost",
        )
    if code == "READONLY":
        return QueueReadOnly(
            f"{where} is a replica and cannot be written", hint="give the address of the primary server"
        )
    if code == "MISCONF":
        return QueueReadOnly(
            f"{where} takes no changes, since it cannot save to its disk",
            hint="make room on its disk and look at its log; nothing is lost",
        )
    if code == "NOREPLICAS":
        return QueueReadOnly(
            f"{where} takes no changes, since too few replicas follow it (min-replicas-to-write)",
            hint="start its replicas; nothing is lost",
        )
    if code == "LOADING":
        return QueueUnavailable(f"Redis at {where} is still reading its data", hint="try again in a while")
    if code in _NOT_LET_IN or "invalid password" in text or "AUTH" in code:
        return QueueRefused(
            f"{where} does not let us in: {text}", hint="check user and password in the address of the queue"
        )
    if code in ("MOVED", "ASK"):
        return QueueRefused(
            f"{where} is one node of a Redis Cluster, and namespace {where.namespace} is kept on another",
            hint=f"give the address of that node: {text.split(' ')[-1]}",
        )
    if "SELECT is not allowed in cluster mode" in text:
        return QueueRefused(
            f"{where} is a Redis Cluster, which has no databases", hint="leave the number out of the address"
        )
    if code == "ERR":  # a script that failed does so again
        return QueueRefused(
            f"{where} does not understand us: {text}",
            hint="its data may be of another version of shoal: see `shoal doctor`, or take another namespace",
        )
    return QueueUnavailable(f"{where}: {text}", hint="see `shoal doctor`")


def unreachable(where: Address, error: Exception) -> Act:
    reason = getattr(error, "strerror", None) or str(error) or "no answer in time"
    return QueueUnavailable(
        f"Redis at {where} cannot be reached: {reason}", hint="start it, or check --queue"
    )


def closed() -> Act:
    return QueueUnavailable("the queue was closed", hint="open it again")
