"""Diagnostics: what a person should know of the server, each with what to do about it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from shoal.queue.base import Finding
from shoal.queue.redis import server
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.server_url import RedisUrl

SLOW = 0.02  # seconds for an answer
APART = 2.0  # seconds between two clocks
NEARLY = 0.8  # of a limit
PINGS = 5
_LOG_FIX = "CONFIG SET appendonly yes, and the same line in redis.conf"
_FSYNC = {
    "always": Finding(
        "sync", "ok", "every change is on the disk before it is acknowledged (appendfsync always)"
    ),
    "everysec": Finding(
        "sync", "note", "a crash of the machine may undo the last second or two (appendfsync everysec)",
        "appendfsync always where nothing acknowledged may be undone; it is several times slower",
    ),
    "no": Finding(
        "sync", "warning", "a crash of the machine may undo half a minute (appendfsync no)",
        "CONFIG SET appendfsync everysec, and the same line in redis.conf",
    ),
}  # fmt: skip


async def diagnose(engine: Engine) -> list[Finding]:
    took, apart = await _clock(engine)
    about = server.parse(await engine.plain("INFO"))
    findings = [_version(about), _latency(took), _clocks(apart), _eviction(about), _memory(about)]
    findings += _log(about, engine.aof)
    findings += _role(about, engine.server_url)
    least = await engine.try_command("CONFIG", "GET", "min-replicas-to-write")
    findings += _replicas(about, engine.server_url, int(least[1]) if least else 0)
    limit = await engine.try_command("CONFIG", "GET", "maxclients")
    findings.append(_clients(about, int(limit[1]) if limit else 0))
    return findings


async def _clock(engine: Engine) -> tuple[float, float]:
    """The quickest of a few answers, and how far the server's clock is from ours."""
    best, apart = float("inf"), 0.0
    for _ in range(PINGS):
        began = time.perf_counter()
        seconds, micros = await engine.plain("TIME")
        took = time.perf_counter() - began
        if took < best:
            best, apart = took, int(seconds) + int(micros) / 1e6 - (time.time() - took / 2)
    return best, apart


def _version(about: dict[str, str]) -> Finding:
    if server.version(about) < server.OLDEST:
        return Finding("version", "wrong", f"{server.name(about)} is too old", "upgrade to 6.2 or newer")
    return Finding("version", "ok", server.name(about))


def _latency(took: float) -> Finding:
    words = f"it answers within {took * 1000:.1f} ms"
    if took > SLOW:
        return Finding("latency", "warning", words, "run workers near the server, or look what it is busy with")
    return Finding("latency", "ok", words)


def _clocks(apart: float) -> Finding:
    words = f"its clock and this machine's are {abs(apart):.1f} s apart"
    if abs(apart) > APART:
        return Finding("clock", "warning", f"{words}; the server's is the one that counts", "switch on NTP on both")
    return Finding("clock", "ok", words)


def _eviction(about: dict[str, str]) -> Finding:
    policy = about.get("maxmemory_policy", "noeviction")
    if server.evicts(about):
        return Finding("eviction", "wrong", f"it evicts data when its memory is full ({policy})", server.EVICTION_FIX)
    if policy != "noeviction":
        return Finding(
            "eviction", "warning", f"with a memory limit it would evict data ({policy})", server.EVICTION_FIX
        )
    return Finding("eviction", "ok", "nothing is evicted when its memory is full (noeviction)")


def _memory(about: dict[str, str]) -> Finding:
    used, limit = int(about.get("used_memory", 0)), int(about.get("maxmemory", 0))
    there = int(about.get("total_system_memory", 0))
    words = f"{_size(used)} used"
    if limit:
        words += f" of {_size(limit)} (maxmemory)"
        if used > NEARLY * limit:
            return Finding("memory", "warning", words, "raise maxmemory, or keep runs for fewer days (--retention)")
        return Finding("memory", "ok", words)
    words += f", without a limit, on a machine of {_size(there)}"
    if there and used > NEARLY * there / 2:  # a rewrite of the log may need as much again
        return Finding(
            "memory", "warning", words, "keep runs for fewer days (--retention), or move to a larger machine"
        )
    return Finding("memory", "note", words, "set maxmemory to two thirds of what the machine can spare")


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"


def _log(about: dict[str, str], fsync: str) -> Iterator[Finding]:
    if about.get("aof_enabled") != "1":
        yield Finding(
            "persistence", "warning",
            "it keeps no log (appendonly no): a restart undoes all since the last snapshot", _LOG_FIX,
        )  # fmt: skip
        return
    if about.get("aof_last_write_status") != "ok" or about.get("aof_last_bgrewrite_status") != "ok":
        yield Finding(
            "persistence", "wrong", "it could not write its log the last time it tried",
            "free space on its disk and look at its log",
        )  # fmt: skip
    else:
        yield Finding("persistence", "ok", "it keeps a log of all changes (appendonly yes)")
    yield _FSYNC.get(fsync, Finding("sync", "note", f"appendfsync {fsync or 'unknown'}"))


def _role(about: dict[str, str], server_url: RedisUrl) -> Iterator[Finding]:
    if about.get("role", "master") != "master":
        yield Finding("role", "wrong", "it is a replica and cannot be written", "give the URL of the primary")
    if about.get("cluster_enabled") == "1":
        yield Finding(
            "cluster", "note", "it is a node of a cluster: all of a namespace is kept on one node",
            "use several namespaces to use several nodes"
            if server_url.kind == "cluster"
            else "redis+cluster:// finds the node by itself, also after a fail-over",
        )  # fmt: skip


def _replicas(about: dict[str, str], server_url: RedisUrl, least: int) -> Iterator[Finding]:
    """What a fail-over would lose."""
    count, asked = int(about.get("connected_slaves", 0)), server_url.replicas
    words = f"{count} {'replica follows' if count == 1 else 'replicas follow'}"
    if asked > count:
        fix = "start its replicas, or ask for fewer (?replicas=): changes wait for them"
        yield Finding("replicas", "wrong", f"{words}, and the URL asks for {asked}", fix)
    elif server_url.fails_over and not count:
        yield Finding("replicas", "warning", "no replica follows: nobody could take over", "start its replicas")
    elif asked and least:
        yield Finding("replicas", "ok", f"{words}; a change is acknowledged when {asked} of them have it")
    elif asked:
        fix = f"CONFIG SET min-replicas-to-write {asked}: a primary that is cut off then takes no changes"
        yield Finding("replicas", "ok", f"{words}; a change is acknowledged when {asked} of them have it", fix)
    elif count:
        yield Finding(
            "replicas", "note", f"{words} at a distance: a fail-over may undo the last moment",
            "?replicas=1 in the URL waits for one of them; CONFIG SET min-replicas-to-write 1",
        )  # fmt: skip


def _clients(about: dict[str, str], limit: int) -> Finding:
    count = int(about.get("connected_clients", 0))
    limit = limit or int(about.get("maxclients", 0))
    words = f"{count} of {limit} connections in use" if limit else f"{count} connections in use"
    if limit and count > NEARLY * limit:
        return Finding("connections", "warning", words, "raise maxclients, and the server's limit of open files")
    return Finding("connections", "ok", words)
