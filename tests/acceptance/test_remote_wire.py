"""The client of a remote queue before servers that are not as they should be: every one on this machine."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from conformance.http_backend import OpenAccess, serve
from servers.nginx import make_certificate
from wait import FOREVER, HANG

from shoal.control import queue_verbs
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import Outcome
from shoal.errors import ActionRequired, QueueRefused, QueueUnavailable, UsageError
from shoal.queue import document_kinds as kinds
from shoal.queue import http as http_queue
from shoal.queue import http_connection
from shoal.queue.base import Promises, TaskFilter
from shoal.queue.http import HttpQueue
from shoal.queue.sqlite import SqliteQueue, purge
from shoal.queue.wire import MEDIA_TYPE, PATH, PROTOCOL, VERBS, ServerInfo
from shoal.sources.start_task import start_task
from shoal.web.api import queue as verbs
from shoal.web.auth.access import Caller

# Servers of one sentence


def answer(status: str, body: bytes = b"", *headers: str, length: int = -1) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length < 0 else length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def packed(value: object) -> bytes:
    return answer("200 OK", msgspec.msgpack.encode(value), f"Content-Type: {MEDIA_TYPE}")


HELLO = packed(ServerInfo("1", PROTOCOL, Promises("", False, "")))
NOW = packed(1)
HTML = "Content-Type: text/html"
Answers = Sequence[bytes | None]  # None: not a word, for as long as asked


@asynccontextmanager
async def saying(answers: Answers, *, hang_up: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers the n-th request with the n-th text, whatever was asked, then with the last."""
    asked: list[bytes] = []
    open_ones: set[asyncio.StreamWriter] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                asked.append(head)
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                said = answers[min(len(asked), len(answers)) - 1]
                if said is None:
                    await asyncio.sleep(60)
                    return
                writer.write(said)
                await writer.drain()
                short = said.startswith(b"HTTP") and b"Content-Length: 1000\r\n" in said
                if hang_up or short or not said:
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            open_ones.discard(writer)
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()
        for writer in list(open_ones):
            writer.transport.abort()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (b"-ERR unknown command 'GET'\r\n", QueueRefused, "is not HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", QueueRefused, "is not HTTP"),
        (answer("200 OK", b"<html>Welcome", HTML), QueueRefused, "text/html"),
        (answer("502 Bad Gateway", b"<html>Bad", HTML), QueueUnavailable, "502"),
        (answer("504 Gateway Time-out", b"<html>", HTML), QueueUnavailable, "504"),
        (answer("503 Service Unavailable"), QueueUnavailable, "503"),
        (answer("401 Unauthorized"), QueueRefused, "needs a token"),
        (answer("404 Not Found", b"<html>", HTML), QueueRefused, "404"),
        (answer("301 Moved", b"", "Location: http://127.0.0.1:9/"), QueueRefused, "redirects elsewhere"),
        (answer("307 Moved", b"", "Location: /x"), QueueRefused, "redirects elsewhere"),
        (answer("200 OK", b"\x81\xa5shoal", f"Content-Type: {MEDIA_TYPE}"), QueueRefused, "as a shoal"),
        (packed(ServerInfo("99", 99, Promises("", False, ""))), QueueRefused, "another version"),
        (answer("200 OK", b"{", f"Content-Type: {MEDIA_TYPE}", length=1000), QueueUnavailable, "closed"),
        (b"", QueueUnavailable, "closed"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", QueueRefused, "not HTTP"),
    ],
    ids=lambda value: repr(value)[:30] if isinstance(value, bytes) else "",
)
async def test_whatever_answers_there_is_told_apart(said: bytes, kind: type[ActionRequired], words: str) -> None:
    async with saying([said]) as (url, asked):
        with pytest.raises(kind, match=words) as caught:
            await HttpQueue.open(url)
        assert caught.value.hint
        assert len(asked) == 1  # no redirect was followed, and nothing was asked twice


async def test_nobody_there_is_unavailable() -> None:
    async with saying([b""]) as (url, _):
        pass
    with pytest.raises(QueueUnavailable, match="cannot be reached"):
        await HttpQueue.open(url)


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
async def test_who_is_asked_to_come_back_comes_back(status: str) -> None:
    async with saying([answer(status, b"", "Retry-After: 1"), HELLO]) as (url, asked):
        loop = asyncio.get_running_loop()
        began = loop.time()
        await (await HttpQueue.open(url)).close()
        assert len(asked) == 2
        assert loop.time() - began >= 0.9


async def test_a_server_that_only_ever_says_later_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.queue.http.RETRY_BUDGET", {429: 0.25})
    async with saying([answer("429 Too Many Requests")]) as (url, asked):
        with pytest.raises(QueueUnavailable, match="429"):
            await HttpQueue.open(url)
        assert len(asked) == 3


async def test_a_wrong_token_is_not_tried_again() -> None:
    body = msgspec.json.encode({"type": "urn:shoal:problem:too-many-invalid-tokens", "detail": "too many"})
    async with saying([answer("429 Too Many Requests", body, "Retry-After: 1")]) as (url, asked):
        with pytest.raises(QueueRefused, match="too many"):
            await HttpQueue.open(url, token="wrong")
        assert len(asked) == 1
        assert b"Authorization: Bearer wrong\r\n" in asked[0]


async def test_silence_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "SILENCE_TIMEOUT", 0.2)
    async with saying([None]) as (url, _):
        with pytest.raises(QueueUnavailable, match="no answer within"):
            await HttpQueue.open(url)


async def test_an_answer_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "MAX_RESPONSE_BYTES", 10_000)
    large = answer("200 OK", b"x" * 20_000, f"Content-Type: {MEDIA_TYPE}")
    endless = b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(2_000))
    for said in (large, endless):
        async with saying([said]) as (url, _):
            with pytest.raises(QueueUnavailable, match="too large"):
                await HttpQueue.open(url)


async def test_a_connection_that_was_closed_meanwhile_costs_nothing() -> None:
    async with saying([HELLO, NOW], hang_up=True) as (url, asked):
        queue = await HttpQueue.open(url)
        for _ in range(3):
            assert await queue.now() == 1
        await queue.close()
    assert len(asked) == 4


async def test_a_request_whose_answer_was_lost_is_asked_again_on_another_connection() -> None:
    async with saying([HELLO, b"", NOW]) as (url, asked):
        queue = await HttpQueue.open(url)
        assert await queue.now() == 1
        await queue.close()
    assert len(asked) == 3


@pytest.mark.parametrize("more", [packed(666), packed(666)[:-1]], ids=["whole", "begun"])
async def test_what_nobody_asked_for_is_not_taken_for_the_next_answer(more: bytes) -> None:
    async with saying([HELLO + more, NOW]) as (url, _):
        queue = await HttpQueue.open(url)
        await asyncio.sleep(0.01)
        assert await queue.now() == 1
        await queue.close()


async def test_a_caller_who_gives_up_leaves_no_answer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async with saying([HELLO, None, NOW]) as (url, _):
        queue = await HttpQueue.open(url)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await queue.now()
        assert await queue.now() == 1
        await queue.close()


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the name localhost, signed by nobody but itself."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@asynccontextmanager
async def over_tls(folder: Path, certificate: Path) -> AsyncIterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    behind = await SqliteQueue.open(str(folder / "queue.db"))
    server = await serve(behind, context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await behind.close()


async def test_a_certificate_that_is_trusted_and_for_this_name_opens_the_way(tmp_path: Path, certificate: Path) -> None:
    async with over_tls(tmp_path, certificate) as port:
        queue = await HttpQueue.open(f"https://localhost:{port}", ca_file=str(certificate))
        assert await queue.now() > 0
        await queue.close()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("url", "trusted", "words"),
    [
        ("https://localhost:{port}", False, "self.signed"),
        ("https://127.0.0.1:{port}", True, "not valid for '127.0.0.1'"),
    ],
)
async def test_any_other_certificate_is_refused_with_the_way_out(
    tmp_path: Path, certificate: Path, url: str, trusted: bool, words: str
) -> None:
    async with over_tls(tmp_path, certificate) as port:
        with pytest.raises(QueueRefused, match=words) as caught:
            await HttpQueue.open(url.format(port=port), ca_file=str(certificate) if trusted else "")
        assert "--ca-file" in caught.value.hint
        await asyncio.sleep(0.05)


async def test_a_server_without_tls_and_a_file_without_certificates_are_told(tmp_path: Path) -> None:
    async with remote(tmp_path) as (_, url):
        with pytest.raises(QueueRefused, match="does not speak TLS"):
            await HttpQueue.open(url.replace("http:", "https:"))
    for name in ("missing.pem", "empty.pem"):
        (tmp_path / "empty.pem").touch()
        with pytest.raises(UsageError, match="certificates") as caught:
            await HttpQueue.open("https://localhost:1", ca_file=str(tmp_path / name))
        assert "--ca-file" in caught.value.hint


# A real server, and what it does not do for a worker


@asynccontextmanager
async def remote(folder: Path) -> AsyncIterator[tuple[HttpQueue, str]]:
    behind = await SqliteQueue.open(str(folder / "queue.db"))
    server = await serve(behind)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    queue = await HttpQueue.open(url)
    try:
        yield queue, url
    finally:
        await queue.close()
        server.close()
        await behind.close()


OWN = (
    kinds.TOKEN,
    kinds.SESSION_KEY,
    kinds.WEBHOOK,
    kinds.WEBHOOK_KEY,
    kinds.WEBHOOK_WATCH,
    kinds.WEBHOOK_DELIVERY,
    kinds.ACTIONS,
    kinds.IDEMPOTENCY + "ab",
    kinds.URL_LIST + "ab",
)
READING: dict[str, Callable[[HttpQueue, str], Any]] = {
    "document": lambda queue, kind: queue.document(kind, "x"),
    "documents": lambda queue, kind: queue.documents(kind),
    "save_document": lambda queue, kind: queue.save_document(kind, "x", "y"),
    "compare_and_swap": lambda queue, kind: queue.compare_and_swap(kind, "x", "y", 0),
}


async def test_no_verb_reaches_the_documents_of_the_server_itself(tmp_path: Path) -> None:
    async with remote(tmp_path) as (queue, _):
        for kind in OWN:
            for verb in READING.values():
                with pytest.raises(QueueRefused, match="internal to the server"):
                    await verb(queue, kind)
        assert (await queue.save_document("template", "x", "y")).version == 1


ODD: tuple[Any, ...] = (
    2**63, 2**64 - 1, -(2**63), -1, math.nan, math.inf, -math.inf, 1e300, "\0", "x" * 100_000, "", b"\xff",
    [], {}, [[]], None, True, {"a": math.nan}, [2**64 - 1], [-1], {"x": -1},
)  # fmt: skip
PLAIN: dict[str, Any] = {
    "run": 1, "worker": "w", "limit": 1, "max_pages": 5, "lane": "a.test", "leases": {}, "outcomes": [], "runs": [1],
    "tasks": [], "seqs": [], "digests": [], "digest": b"x" * 16, "upto": 0, "action": "pause", "kind": "note",
    "name": "n", "text": "t", "expected": 0, "command": "", "seconds": 0.0,
    "keys": [], "urls": [], "states": [], "max_bytes": 1_000_000,
    "entry": {"key": b"k", "host": "a.test", "url": "http://a.test/", "data": b"d"}, "change": {"lane": "a.test"},
    "new": {"scraper": "s", "key": "k", "name": "n"},
    "status": {"id": "w", "name": "w", "host": "h", "pid": 1, "version": "1", "started_at": 0, "seen_at": 0},
}  # fmt: skip


async def test_who_works_on_runs_is_not_told_where_their_webhooks_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"command": "shoal submit …", "hooks": [{"url": "https://hooks.example/secret", "events": ["finished"]}]}
    async with remote(tmp_path) as (queue, _):
        started = await queue.start_run(NewRun("s", "k", name="r", spec=spec))
        assert started.spec == spec  # an admin's own
        monkeypatch.setattr(OpenAccess, "authorize", _as_worker)
        again = [await queue.start_run(NewRun("s", "k")), await queue.set_run(started.id, "pause"), *await queue.runs()]
        assert [run.spec for run in again] == [{"command": "shoal submit …"}] * 3


async def _as_worker(*_: object) -> Caller:
    return Caller("w", frozenset({"work"}))


async def test_no_message_makes_the_server_fail(tmp_path: Path) -> None:
    async with remote(tmp_path) as (queue, url), httpx.AsyncClient(trust_env=False) as client:
        await queue.start_run(NewRun("s", "key", name="n"))
        failed = []
        for name, verb in VERBS.items():
            if name == "wait":  # see below
                continue
            needed = {it: PLAIN[it] for it in verb.message.__struct_fields__ if it not in verb.defaults}
            for field in verb.message.__struct_fields__:
                for value in ODD:
                    body = msgspec.msgpack.encode(needed | {field: value})
                    said = await client.post(f"{url}{PATH}/{name}", content=body)
                    if said.status_code >= 500:
                        failed.append((name, field, repr(value)[:40], said.status_code))
        for body in (b"", b"\xc1", b"\x80", b"{}", b"\xdf\xff\xff\xff\xff", b"\x91" * 5_000):
            assert (await client.post(f"{url}{PATH}/stats", content=body)).status_code == 422
        assert (await client.post(f"{url}{PATH}/close", content=b"\x80")).status_code == 404
        assert not failed
        assert (await queue.stats(1)).is_balanced


async def test_a_message_is_only_so_large_and_comes_only_so_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "MAX_MESSAGE", 2_000_000)
    async with remote(tmp_path) as (_, url), httpx.AsyncClient(trust_env=False, timeout=HANG) as client:

        async def slowly() -> AsyncIterator[bytes]:
            yield b"\x81"
            await asyncio.sleep(2)

        assert (await client.post(f"{url}{PATH}/stats", content=b"x" * 2_000_001)).status_code == 413
        monkeypatch.setattr(verbs, "MAX_TOTAL", 1_500_000)
        assert (await client.post(f"{url}{PATH}/stats", content=b"x" * 1_900_000)).status_code == 429
        monkeypatch.setattr(verbs, "BODY_TIMEOUT", 0.2)
        assert (await client.post(f"{url}{PATH}/stats", content=slowly())).status_code == 408
        assert verbs._LargeBodies.size == 0


async def test_more_than_fits_into_a_message_goes_as_several(tmp_path: Path) -> None:
    async with remote(tmp_path) as (queue, url), httpx.AsyncClient(trust_env=False) as client:
        run = await queue.start_run(NewRun("s", "key", name="n"))
        tasks = [start_task(f"http://h{n % 3}.test/{n}") for n in range(4_500)]
        paces = {task.lane: UNLIMITED_PACE for task in tasks}
        assert [it for it in await queue.add(run.id, tasks, paces) if it != "added"] == []
        assert set(await queue.add(run.id, tasks, paces)) == {"known"}
        assert (await queue.stats(run.id)).ready == 4_500
        assert {lane.spacing for lane in await queue.lanes()} == {UNLIMITED_PACE.spacing}
        views = await queue.list_tasks(run.id, limit=10_000)
        assert [view.id for view in views] == sorted({view.id for view in views})
        assert len(views) == 4_500
        assert len(await queue.list_tasks(run.id, limit=2_500)) == 2_500
        assert len(await queue.list_tasks(run.id, limit=2_500, after=views[3_999].id)) == 500
        direct = VERBS["add"].pack((run.id, tasks[:2_001]), {})
        assert (await client.post(f"{url}{PATH}/add", content=direct)).status_code == 422


async def test_many_runs_are_listed_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.queue.remote.PAGE_SIZE", 10)
    async with remote(tmp_path) as (queue, _):
        for number in range(30):
            await queue.start_run(NewRun("s", f"key {number}", name=f"r{number}"))
        names = [f"r{number}" for number in reversed(range(30))]
        for limit in (5, 10, 11, 25, 30, 31, 10_000):
            assert [run.name for run in await queue.runs(limit=limit)] == names[:limit]


async def test_the_accounts_of_many_runs_are_asked_for_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.queue.remote.MAX_RUNS_PER_CALL", 2)
    async with remote(tmp_path) as (queue, _):
        runs = [(await queue.start_run(NewRun("s", f"k{n}", name=f"r{n}"))).id for n in range(5)]
        for number, run in enumerate(runs):
            await queue.add(run, [start_task(f"http://a.test/{n}") for n in range(number)])
        assert [stats.ready for stats in await queue.stats_of(runs)] == [0, 1, 2, 3, 4]
        assert await queue.stats_of([]) == []


WHERES = (TaskFilter(), TaskFilter(url="*/x*"), TaskFilter(lane="h1.test"), TaskFilter(url="*/x*", lane="h1.test"))


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("verb", ["drop", "revive"])
async def test_many_tasks_are_changed_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, where: TaskFilter
) -> None:
    asked: list[tuple[TaskFilter, int]] = []
    real = getattr(SqliteQueue, verb)

    async def noted(self: SqliteQueue, run: int, where: TaskFilter, **how: Any) -> int:
        asked.append((where, how["limit"]))
        return int(await real(self, run, where, **how))

    monkeypatch.setattr(SqliteQueue, verb, noted)
    monkeypatch.setattr(queue_verbs, "BATCH_SIZE", 3)
    async with remote(tmp_path) as (queue, _):
        run = await queue.start_run(NewRun("s", "key", name="n"))
        tasks = [start_task(f"http://h{n % 2}.test/{'xy'[n % 3 == 0]}{n}") for n in range(24)]
        await queue.add(run.id, tasks, {task.lane: UNLIMITED_PACE for task in tasks})
        claim = await queue.claim("w", 24)
        result: Any = "dead" if verb == "revive" else "retry"
        await queue.settle([Outcome(it.id, it.lease, result, cause="x", after=60.0) for it in claim.tasks[::2]])
        await queue.settle([Outcome(it.id, it.lease, "released") for it in claim.tasks[1::2]])
        if verb == "revive":
            wanted = await queue.list_tasks(run.id, state="dead", where=where)
        else:
            wanted = [
                *await queue.list_tasks(run.id, state="ready", where=where),
                *await queue.list_tasks(run.id, state="delayed", where=where),
            ]
        act = getattr(queue, verb)
        assert wanted
        assert await act(run.id, where, limit=2) == 2
        ids = tuple(view.id for view in wanted)
        assert await act(run.id, msgspec.structs.replace(where, ids=ids)) == len(ids) - 2
        assert await act(run.id, where) == 0
        assert {limit for _, limit in asked} <= {0, 1, 2, 3}
        assert await queue.stats(run.id) == await queue.recount(run.id)


async def test_what_takes_longer_than_a_request_may_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with remote(tmp_path) as (queue, url), httpx.AsyncClient(trust_env=False) as client:
        run = await queue.start_run(NewRun("s", "key", name="n"))
        await queue.add(run.id, [start_task(f"http://a.test/{n}") for n in range(9)])
        await queue.set_run(run.id, "cancel")
        with monkeypatch.context() as hurried:
            hurried.setattr(queue_verbs, "MAX_SECONDS", 0.0)
            hurried.setattr(purge, "SLICE", 2)
            body = VERBS["purge"].pack((), {"run": run.id})
            said = await client.post(f"{url}{PATH}/purge", content=body)
            assert (said.status_code, said.headers["Retry-After"]) == (503, "1")
            assert said.json()["hint"]
        assert await queue.purge(run=run.id) == 1


async def test_a_wait_is_short_whatever_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_verbs, "MAX_WAIT", 0.2)
    async with remote(tmp_path) as (_, url), httpx.AsyncClient(trust_env=False) as client:
        for seconds in (30.0, -1.0, math.inf, math.nan, 2**63, -(2**63)):
            body = VERBS["wait"].pack((seconds,), {})
            said = await client.post(f"{url}{PATH}/wait", content=body, timeout=15.0)
            assert said.status_code in (200, 422)


async def test_a_wait_ends_with_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (queue_verbs, http_queue):
        monkeypatch.setattr(module, "MAX_WAIT", FOREVER)
    async with remote(tmp_path) as (queue, _):
        run = await queue.start_run(NewRun("s", "key", name="n"))
        waiting = asyncio.create_task(queue.wait(FOREVER))
        for _ in range(5):  # a wait that did not wait would be answered before these
            await queue.stats(run.id)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await queue.add(run.id, [start_task("http://a.test/")])
        await asyncio.wait_for(waiting, HANG)
