"""Hostile requests to a whole server, without sockets: none is evaluated, let in, or shown as it came."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import yaml
from whole_server import BEARER, OWN, serving

from shoal.core.run import NewRun
from shoal.core.task import Outcome
from shoal.queue.base import Queue
from shoal.queue.wire import MEDIA_TYPE, PATH, VERBS
from shoal.sources.start_task import start_task
from shoal.web.http import limits

# What takes for ever once it is evaluated, or is not what it says it is.
EVALUATED = [
    "re:(a+)+$", "re:(a|a)*b", "re:(a|aa)+$", "re:(.*)*x", "re:([a-z]+)*=", "re:(x+x+)+y", r"re:(\w+\s?)*$",
    "re:" + "(" * 900, "re:" + "a{1,1000}" * 90, "re:(?P<a>", "re:" + "[\\U00000000-\\U0010ffff]" * 80,
    "xpath://*[re:test('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!', '(a+)+$')]", "xpath:re:match(//a, '(a+)+$')",
    "xpath:re:replace(//a, '(a+)+$', 'g', '')", "xpath://a[regexp:test(., '(a+)+$')]",
    "xpath:document('http://127.0.0.1/')", "xpath:document('/etc/passwd')", "xpath:str:padding(1000000000)",
    "xpath:str:tokenize('a', 'b')", "xpath:dyn:evaluate('//a')", "xpath:math:power(9, 999999)",
    "xpath://*[count(//*[count(//*[count(//*)])])]", "xpath:" + "(" * 1900, "xpath:" + "//a" * 650,
    "xpath:" + "-" * 1900 + "1",
    "xpath:a" + "[a" * 600 + "]" * 600, "xpath:$x", "xpath:ns:a", "xpath:string-length(//a)", "xpath:a\x00b",
    "json:" + "[" * 900, "json:" + "a.b" * 600, "json:" + "!" * 1900 + "a", "json:`" + "[" * 1900 + "`",
    "json:max_by(@, &a)",
    "json:sort_by(@, &sort_by(@, &a))", "json:@.*.*.*.*.*.*.*.*.*", "json:[?" * 300,
    "data:" + "a[]" * 600, "meta:" + "x" * 1990, ":is(" * 400, ":not(" * 300 + "a" + ")" * 300,
    ":has(" * 300 + "a" + ")" * 300, "a," * 990 + "a", "*" * 1990, "a~" * 990 + "a", "[" * 1990, '"' * 1990,
    ":contains('" + "a" * 1900 + "')", "\\41 " * 480, "::" + " " * 1900 + "x", ":nth-child(" + "9" * 1900 + "n)",
    "{{ 7*7 }}", "{% for a in range(999999999) %}a{% endfor %}", "${7*7}", "__import__('os').system('true')",
]  # fmt: skip


async def post_batch(client: httpx.AsyncClient, selector: str, key: str = "x") -> httpx.Response:
    body = {
        "urls": ["https://shop.example/"], "distributed": True, "timeout": 0.01, "options": {"fields": {key: selector}}
    }  # fmt: skip
    return await client.post("/api/crawl/batch", json=body, headers=BEARER)


async def put_template(client: httpx.AsyncClient, selector: str) -> httpx.Response:
    pages = [{"kind": "page", "match": selector, "fields": {"x": selector}}]
    text = yaml.safe_dump({"name": "x", "start": ["https://shop.example/"], "pages": pages})
    return await client.put("/api/v1/templates/x?check=true", content=text, headers=BEARER)


async def submit_run(client: httpx.AsyncClient, selector: str) -> httpx.Response:
    body = {"urls": ["https://shop.example/"], "fields": {"x": selector}}
    return await client.post("/api/v1/runs", json=body, headers=BEARER)


@pytest.mark.parametrize("send", [post_batch, put_template, submit_run])
async def test_nothing_that_a_stranger_wrote_is_evaluated(tmp_path: Path, send: Any) -> None:
    """Evaluated, one of them would take longer than any test may; and others are answered meanwhile."""
    async with serving(tmp_path) as (_, client):
        for selector in EVALUATED:
            asked = asyncio.create_task(send(client, selector))
            while not asked.done():
                assert (await client.get("/health")).status_code == 200
                await asyncio.sleep(0)
            answer = await asked
            assert answer.status_code in (200, 201, 422), (selector[:60], answer.status_code, answer.text[:200])


NAMES = ["a" + " " * 498, " " * 499 + "a", "a[]" * 160, "a:" * 240, "[]" * 249, "a\u2028b", "\u202egnp", "é" * 499]


async def test_no_name_of_a_field_takes_long(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        for name in NAMES:
            assert (await post_batch(client, "h1", name)).status_code in (200, 422), name[:20]


PATTERNS = [
    "*a" * 900 + "b",
    "*" * 1900,
    "%" * 1900,
    "_" * 1900,
    "[" * 1900,
    "[a-",
    "\\" * 1900,
    "?" * 1900,
    "(a+)+$",
    "'; --",
]
FILTERS = [
    "/api/v1/runs/books/tasks?url={}",
    "/api/v1/runs/books/dead-letters?cause={}",
    "/api/v1/runs/books/dead-letters?url={}",
    "/api/v1/hosts?like={}",
    "/runs/books/dead.csv?url={}",
    "/search?q={}",
    "/hosts?q={}",
    "/runs?q={}",
]


async def test_filters_match_in_linear_time(tmp_path: Path) -> None:
    async with serving(tmp_path) as (application, client):
        assert application.context is not None
        await application.context.queue.start_run(NewRun("books", "key", name="books"))
        for path in FILTERS:
            for pattern in PATTERNS:
                answer = await client.get(path.format(quote(pattern, safe="")), headers=BEARER)
                assert answer.status_code in (200, 303, 404, 422), (path, pattern[:20], answer.text[:200])


# Requests to a server without tokens, from somebody whose user is not known.
PROXIED = [
    {name: value}
    for name in (
        "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Real-IP",
        "X-Forwarded-Server", "X-Forwarded-User", "X-Original-Forwarded-For", "X-Original-URL", "X-Client-IP",
        "X-Cluster-Client-IP", "True-Client-IP", "Proxy-Connection", "Proxy-Authorization", "X-Real-Port",
    )
    for value in ("127.0.0.1", "")
]  # fmt: skip
STRANGERS = [
    {"Host": host}
    for host in (
        "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "0.0.0.0", "[::2]", "", "0",
        "127.1.evil", "localhost@evil.example", "evil.example:8080", "\u0661\u0662\u0667.0.0.1", "169.254.169.254",
    )
]  # fmt: skip
PRETENDERS = [
    {}, {"Authorization": "Bearer "}, {"Authorization": "Bearer this machine"}, {"Authorization": f"Bearer {OWN}"},
    {"Authorization": "Basic cm9vdDo="}, {"Authorization": "Bearer shoal_" + "A" * 43}, {"Authorization": "x" * 9000},
    {"Cookie": "shoal-00000000=a.b"}, {"X-Shoal-CSRF": "x"}, {"Origin": "http://127.0.0.1:8080"},
    {"Sec-Fetch-Site": "same-origin"}, {"X-HTTP-Method-Override": "DELETE"}, {"Authorization": "Bearer null"},
]  # fmt: skip


async def test_without_tokens_nobody_gets_in_by_a_header(tmp_path: Path) -> None:
    async with serving(tmp_path, token="", client=("127.0.0.1", 1)) as (_, client):
        for headers in (*PROXIED, *STRANGERS, *PRETENDERS):
            raw = [(name.encode(), value.encode()) for name, value in headers.items()]  # type: ignore[attr-defined]
            answer = await client.get("/api/v1/tokens", headers=raw)
            assert answer.status_code in (401, 403), (headers, answer.text)


async def test_guesses_are_limited_whatever_else_a_request_says(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        statuses = []
        for number, headers in enumerate((*PROXIED, *STRANGERS)):
            raw = [
                (name.encode(), value.replace("127.0.0.1", f"192.0.2.{number}").encode())
                for name, value in headers.items()
            ]
            raw.append((b"authorization", f"Bearer guess-{number}".encode()))
            statuses.append((await client.get("/api/v1/runs", headers=raw)).status_code)
        assert statuses[:10] == [401] * 10 and set(statuses[12:]) == {429}
        assert (await client.get("/api/v1/runs", headers=BEARER)).status_code == 200


LOGINS = [
    "/login/once", "/login/once?key=", "/login/once?key=%00", "/login/once?key=" + "a" * 9000, "/login/once?key=shoal_",
    "/login/once?key[]=a", "/login/once?key=a&key=b", "/login/once?next=//evil.example", "/login?next=//evil.example",
    "/login?next=https://evil.example", "/login?next=/\\evil.example", "/login?next=javascript:alert(1)",
    "/login?next=%0d%0aX:1",
]  # fmt: skip


async def test_no_link_logs_anybody_in_or_leads_elsewhere(tmp_path: Path) -> None:
    async with serving(tmp_path) as (application, client):
        for path in LOGINS:
            answer = await client.get(path, headers={"Accept": "text/html"})
            assert answer.status_code in (200, 401, 422, 429), (path, answer.status_code)
            assert "set-cookie" not in answer.headers and "location" not in answer.headers
            assert not re.search(r'value="(?!/)[^"]*evil|value="//|javascript:', answer.text), path
        assert (await client.post("/logout")).status_code == 303
        assert application.context is not None
        assert await application.context.queue.documents("session-ended") == []  # nobody's session ended nothing


CONTROL = [
    chr(code)
    for code in (*range(1, 9), 11, 12, *range(14, 32), 0x7F, 0x85, 0x9B, 0x202E, 0x2066, 0x200B, 0xFEFF, 0xE000)
]
TYPED = ("urls", "fields", "name", "rate", "max_pages", "routes", "priority")


async def test_submit_shows_no_control_character_as_it_is(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await client.post("/login", data={"token": OWN})
        for number, char in enumerate(CONTROL):
            text, field = f"before{char}after", TYPED[number % len(TYPED)]
            shown = await client.get("/submit", params={field: text})
            word = re.findall(r'name="csrf" (?:content|value)="(\w+)"', shown.text)[0]
            sent = await client.post("/submit", data={"what": "scraper", "csrf": word, field: text})
            for answer in (shown, sent):
                assert answer.status_code in (200, 422) and "before" in answer.text, (char, answer.status_code)
                assert char not in answer.text, (hex(ord(char)), field)
        kept = await client.get("/submit", params={"urls": "https://a.example/\r\nhttps://b.example/"})
        assert "https://a.example/\nhttps://b.example/</textarea>" in kept.text


FORMULAS = [
    "=1+1",
    "+1+1|cmd",
    "-1+1",
    "@SUM(1)",
    "\t=1+1",
    "\r=1+1",
    '=HYPERLINK("http://evil.example")',
    "=cmd|' /C calc'!A0",
]
BROWSERS = [
    {"Accept": "text/html,*/*;q=0.8"},
    {"Sec-Fetch-Dest": "document"},
    {"Sec-Fetch-Dest": "empty", "Accept": "*/*"},
]


async def add_records(queue: Queue, records: Sequence[bytes]) -> None:
    """A run called books, with these records of one page, and another page that waits."""
    run = await queue.start_run(NewRun("books", "key", name="books"))
    await queue.add(run.id, [start_task("https://shop.example/"), start_task("https://shop.example/2")])
    (task,) = (await queue.claim("w", limit=1, lease=60.0)).tasks
    await queue.settle([Outcome(task.id, task.lease, "done", records=tuple(records))])


async def test_a_browser_gets_no_formula_unless_it_asks_for_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (application, client):
        assert application.context is not None
        queue = application.context.queue
        await add_records(queue, [json.dumps({"x": text}).encode() for text in FORMULAS])
        path = "/api/v1/runs/books/records.csv"
        program = (await client.get(path, headers=BEARER)).text
        assert "\n=1+1" in program.replace("\r", "") and "'=1+1" not in program
        for headers in BROWSERS:
            safe = (await client.get(path, headers=BEARER | headers)).text
            assert safe.count("'") >= len(FORMULAS) and not re.search(r'(?m)^"?[=@+]', safe), headers
            assert (await client.get(f"{path}?safe=false", headers=BEARER | headers)).text == program


async def test_what_a_worker_removes_is_among_the_actions(tmp_path: Path) -> None:
    async with serving(tmp_path) as (application, client):
        assert application.context is not None
        queue = application.context.queue
        made = (await client.post("/api/v1/tokens", json={"name": "fleet", "scopes": ["work"]}, headers=BEARER)).json()
        worker = {"Authorization": f"Bearer {made['token']}", "Content-Type": MEDIA_TYPE}

        async def call(verb: str, *args: Any, **named: Any) -> int:
            answer = await client.post(f"{PATH}/{verb}", content=VERBS[verb].pack(args, named), headers=worker)
            assert answer.status_code == 200, answer.text
            return int(VERBS[verb].unpack_answer(answer.content))

        await add_records(queue, [b"{}"] * 3)
        assert [await call("trim", 1, upto) for upto in (1, 1, 2)] == [1, 0, 1]
        assert await call("purge", older_than=0.0) == 0  # nothing has ended
        await queue.set_run(1, "cancel")
        assert await call("purge", run=1) == 1
        items = (await client.get("/api/v1/actions", headers=BEARER)).json()["items"]
        told = [(one["who"], one["what"], one["about"], one["more"].get("count")) for one in items]
        assert [one for one in told if one[0] == "fleet"] == [
            ("fleet", "purge", "books", 1),
            ("fleet", "trim", "books", 2),
        ]


POOLS = [
    ("GET", "/api/v1/events"), ("GET", "/api/v1/events?topic=fleet&topic=fleet"), ("GET", "/api/v1/events?"),
    ("GET", "/api/v1/events?x=1"), ("HEAD", "/api/v1/events"), ("POST", "/api/v1/events"), ("GET", "/api/v1/events/"),
    ("GET", "//api/v1/events"), ("GET", "/api/v1/%65vents"), ("GET", "/api/v1/./events"),
]  # fmt: skip


async def test_no_spelling_of_a_stream_escapes_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAMS", (1, 0))  # nobody gets one
    async with serving(tmp_path) as (_, client):
        for method, path in POOLS:
            answer = await client.request(method, path, headers=BEARER)
            assert answer.status_code in (307, 404, 405, 422, 429), (path, answer.status_code)


def test_there_are_more_than_a_hundred() -> None:
    def count(*tables: Iterable[Any]) -> int:
        return sum(len(list(table)) for table in tables)

    pages = count(NAMES, PROXIED, STRANGERS, PRETENDERS, LOGINS, CONTROL, FORMULAS, POOLS)
    assert pages + 3 * len(EVALUATED) + len(FILTERS) * len(PATTERNS) > 300
