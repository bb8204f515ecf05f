"""Failure: what the server or the way to it says, in our words."""

from __future__ import annotations

from shoal.errors import ActionRequired, QueueFull, QueueReadOnly, QueueRefused, QueueUnavailable
from shoal.queue.redis.server import newer_layout
from shoal.queue.redis.server_url import RedisUrl

# Refusals that time heals: of a server that starts, is busy, or hands over to another.
_TRANSIENT = ("LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "READONLY")
_AUTH_ERRORS = ("NOAUTH", "WRONGPASS", "NOPERM")


class PrimaryMissing(OSError):
    """Those who should know where the primary is do answer, and there is none just now: a fail-over is under way."""


def is_refused_login(error: Exception) -> bool:
    return str(error).startswith(_AUTH_ERRORS) or "invalid password" in str(error) or "AUTH" in str(error).split(" ")[0]


def is_transient(error: Exception) -> bool:
    return str(error).startswith(_TRANSIENT)


def is_replica(error: Exception) -> bool:
    return str(error).startswith("READONLY")


def translate_error(where: RedisUrl, error: Exception) -> ActionRequired:
    """The one mapping from the server's errors to ours."""
    text = str(error)
    code = text.split(" ", 1)[0]
    if code == "OOM":
        return QueueFull(
            f"the memory of Redis at {where} is full (maxmemory)",
            hint="CONFIG SET maxmemory to more, or keep runs for fewer days (--retention); nothing is lost",
        )
    if code == "READONLY":
        return QueueReadOnly(f"{where} is a replica and cannot be written", hint="give the URL of the primary server")
    if code == "MISCONF":
        return QueueReadOnly(
            f"{where} takes no changes, since it cannot save to its disk",
            hint="free space on its disk and look at its log; nothing is lost",
        )
    if code == "NOREPLICAS":
        return QueueReadOnly(
            f"{where} takes no changes, since too few replicas follow it (min-replicas-to-write)",
            hint="start its replicas; nothing is lost",
        )
    if code == "LOADING":
        return QueueUnavailable(f"Redis at {where} is still reading its data", hint="try again in a while")
    if is_refused_login(error):
        return QueueRefused(
            f"{where} refuses the login: {text}", hint="check user and password in the URL of the queue"
        )
    if code == "NEWER":
        return newer_layout(where, text.split(" ")[-1])
    if code in ("MOVED", "ASK"):
        return QueueRefused(
            f"{where} is one node of a Redis Cluster, and namespace {where.namespace} is kept on another",
            hint=f"use redis+cluster://, which finds the node by itself: redis+cluster://{text.split(' ')[-1]}",
        )
    if "SELECT is not allowed in cluster mode" in text:
        return QueueRefused(
            f"{where} is a Redis Cluster, which has no databases",
            hint="leave the number out of the URL, and use redis+cluster://",
        )
    if "cluster support disabled" in text:
        return QueueRefused(f"{where} is not a Redis Cluster", hint="use redis://, or redis+sentinel:// with sentinels")
    if code == "ERR":  # a script that failed does so again
        return QueueRefused(
            f"{where} does not understand us: {text}",
            hint="its data may be of another version of shoal: see `shoal doctor`, or take another namespace",
        )
    return QueueUnavailable(f"{where}: {text}", hint="see `shoal doctor`")


def unreachable(where: RedisUrl, error: Exception) -> ActionRequired:
    reason = getattr(error, "strerror", None) or str(error) or "no answer in time"
    return QueueUnavailable(f"Redis at {where} cannot be reached: {reason}", hint="start it, or check --queue")


def unconfirmed(where: RedisUrl, replicas: int) -> ActionRequired:
    return QueueUnavailable(
        f"{where}: a change did not reach {replicas} replicas, as ?replicas= in the URL asks for",
        hint="start the replicas, or ask for fewer; nothing is lost",
    )


def closed() -> ActionRequired:
    return QueueUnavailable("the queue was closed", hint="open it again")
