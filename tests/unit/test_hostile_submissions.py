"""Hostile submissions to a whole server: rules, sitemaps, settings, schedules and what workers bring.

Each table is sent to every place that takes such a value. No answer is a 5xx, what is refused is refused with words,
and what was let in is within its bounds.
"""

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
from hostile_messages import MESSAGES, NO_VERBS, RESERVED, entry
from whole_server import BEARER, OWN, serving

from shoal.core.glob import Glob
from shoal.core.run import NewRun
from shoal.queue.wire import MEDIA_TYPE, PATH, VERBS
from shoal.web.submit import turns

U = "https://shop.example/"
HUGE = "9" * 400
JSON = BEARER | {"Content-Type": "application/json"}

# Refused, each with words.
BAD_RULES: list[str] = [
    "*", "* ", "* ttl=", "* ttl", "* ttl=inf", "* ttl=nan", "* ttl=1e400", "* ttl=-1", "* ttl=99999999999999d",
    "* cache=inf", "* cache=0", "* cache=http", "* rate=1e-320", "* rate=1e-300", "* rate=1e-9/h", "* rate=0",
    "* rate=nan", "* rate=1/fortnight", "* delay=-1", "* delay=3651d", f"* delay={HUGE}", "* in_flight=1e308",
    f"* in_flight={HUGE}", "* in_flight=-1", "* priority=1e308", "* priority=nan", f"* priority={HUGE}",
    "* session=\u202e", "* session=../../x", "* session=", "* needs=,", "* needs=a,b,c,d,e,f", "* needs=../x",
    "* needs=" + "x" * 400, "* ack=maybe", "[::1:: delay=1", "*.* delay=1", "\ud800 delay=1", "*/\ud800 ttl=1",
    "* ttl=1 ttl=2", "* match=x", "* __class__=1", "* given=1", '* ttl="1"', "shop ttl=1/2", "x*/y ttl=1",
    "/path delay=1", "*/x rate=1", "a\x1bb/ ttl=1", "user:pw@h.example delay=1", "h.example:port delay=1",
    "h.example?x ttl=1", "a*b.example delay=1", "* delay=1 rate=1",
]  # fmt: skip
BAD_RULE_OBJECTS: list[Any] = [
    {}, {"match": "*"}, {"match": "*", "ttl": 1e308}, {"match": "*", "ttl": "inf"}, {"match": "*", "rate": 1e-308},
    {"match": "*", "rate": 5e-324}, {"match": "*", "delay": -1}, {"match": "*", "cache": -1}, {"match": "*", "x": 1},
    {"match": "*", "cache": "http"}, {"match": "*", "session": ""}, {"match": "*", "needs": ["a"] * 5},
    {"match": "*", "needs": []}, {"match": ["*"], "ttl": 1}, {"match": "*", "in_flight": 10**6},
    {"match": "*", "priority": 10**7}, {"match": "", "ttl": 1}, {"match": "x" * 501, "ttl": 1}, {"ttl": 1},
    [], 1, None, {"match": "a\nb/", "ttl": 1}, {"match": "*", "ttl": {"$gt": 1}},
]  # fmt: skip
# Neither evaluated nor harmful, whatever they are.
ODD_RULES: list[str] = [
    " ", "#", "# x", "* rate=1e308", "* delay=3650d", "[::1] delay=1", "127.0.0.1 delay=1", ".. delay=1",
    "xn--a delay=1", "*" * 400 + "/ ttl=1", "*/[ ttl=1", "*/(a+)+$ ttl=1", "https:// ttl=1", "https://[ ttl=1",
    "://x ttl=1", "file:///etc/passwd ttl=1", "*\u00a0ttl=1", "*\u2028ttl=1", "x.example/é ttl=1", "*/%00 ttl=1",
]  # fmt: skip
BAD_SETTINGS: dict[str, list[Any]] = {
    "cache": ["1e400s", "inf", "nan", "-1", "x" * 400, -1, True, 1e308, ["a"], "3651d", "https"],
    "sitemap_since": ["0", "-7d", "2024-99-99", "0000-00-00", "1e308d", "x" * 400, 7, True, "2024-05-31\u202e"],
    "skip_failing": [-1, 1.5, "x", HUGE], "changed_only": ["maybe", 2, 1e9], "dead_retention": [0.001, -1, "9999d"],
    "rate": [1e-320, 1e-300, 0, -1, "1e-300", "1/x", "1e-320/h"], "delay": [1e30, -1], "jitter": [1e300],
    "in_flight": [-1, 1e300, HUGE], "seen": ["../x", "\u202e", "x" * 300], "seen_for": [1e300, -5],
    "max_pages": [-1, 1e300, HUGE], "max_body": [f"{HUGE}GB", 0, "1e9"], "retry_delay": [1e300, "3651d"],
    "header": [["Content-Length: 0"], ["Host: evil"], ["X: a\u000bb"], ["Transfer-Encoding: x"], ["Cookie: a=b"]],
    "cache_size": [1], "allow_private": ["1"], "queue": ["redis://evil.example/0"], "token": ["x"], "secrets": ["x"],
    "proxy": ["http://evil.example:1"], "auth": ["a:b"], "routes": [["* ttl=0"], "* ttl=x", 5, [["*"]]],
    "unknown": [1], "__init__": [1], "ca_file": ["/etc/passwd"], "from_raw": [True], "sources": ["x"],
}  # fmt: skip
# No sitemap, or none that a stranger may have read: alone they are refused, beside a URL rejected or refused.
BAD_SITEMAPS: list[Any] = [
    "", " ", "x", "file:///etc/passwd", "http://127.0.0.1/s.xml", "http://169.254.169.254/", "http://[", "\u202e",
    "http://0x7f.1/", "javascript:1", "sitemap:", "sitemap:http://10.0.0.1/", "sitemap:file:///x", [""], [U] * 101,
    "x" * 9000, {"a": 1}, 7, None, "http://[::1]/s.xml", "http://user:pw@127.0.0.1/", "gopher://x/", "\ud800",
    "sitemap:sitemap:sitemap:" + U, "http://localhost/sitemap.xml", "SITEMAP:http://[::ffff:10.0.0.1]/",
]  # fmt: skip


async def send(client: httpx.AsyncClient, method: str, path: str, body: Any) -> httpx.Response:
    answer = await client.request(method, path, content=json.dumps(body).encode(), headers=JSON)
    assert answer.status_code < 500, (path, ascii(body)[:200], answer.text[:200])
    return answer


def check_refused(answer: httpx.Response, what: object) -> None:
    assert answer.status_code == 422 and answer.json()["detail"], (ascii(what)[:200], answer.status_code)
    assert "Traceback" not in answer.text, ascii(what)[:200]


async def test_no_rule_is_let_in_that_makes_no_sense_or_has_no_bound(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        for rule in (*BAD_RULES, *BAD_RULE_OBJECTS):
            check_refused(await send(client, "POST", "/api/v1/runs", {"urls": [U], "routes": [rule]}), rule)
        for rule in BAD_RULES:
            batch = {"urls": [U], "distributed": True, "timeout": 0.01, "options": {"routes": [rule]}}
            check_refused(await send(client, "POST", "/api/crawl/batch", batch), rule)
            schedule = {"name": "s", "cron": "@daily", "run": {"urls": [U], "settings": {"routes": [rule]}}}
            check_refused(await send(client, "POST", "/api/v1/schedules", schedule), rule)
        for rule in ODD_RULES:
            answer = await send(client, "POST", "/api/v1/runs", {"urls": [U], "routes": [rule], "key": rule})
            assert answer.status_code in (200, 201), (ascii(rule), answer.text[:200])


async def test_there_are_only_so_many_rules_and_combinations_of_needs(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        for rules in (
            [f"h{n}.example ttl=1" for n in range(201)],
            [f"h{n}.example needs=c{n}" for n in range(200)],
            ["* ttl=1", "h.example ttl=1"],
            ["*/a/* ttl=1"] * 2,
        ):
            check_refused(await send(client, "POST", "/api/v1/runs", {"urls": [U], "routes": rules}), rules)
        both = {"urls": [U], "routes": ["* ttl=1"], "settings": {"routes": ["* ttl=2"]}}
        check_refused(await send(client, "POST", "/api/v1/runs", both), both)


async def test_no_setting_is_let_in_that_is_not_the_runs_or_has_no_bound(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        for name, values in BAD_SETTINGS.items():
            for value in values:
                submission = {"urls": [U], "settings": {name: value}}
                check_refused(await send(client, "POST", "/api/v1/runs", submission), submission)
                schedule = {"name": "s", "cron": "@daily", "run": submission}
                check_refused(await send(client, "POST", "/api/v1/schedules", schedule), schedule)
        assert (await client.get("/api/v1/runs", headers=BEARER)).json()["items"] == []
        assert (await client.get("/api/v1/schedules", headers=BEARER)).json()["items"] == []


async def test_no_sitemap_is_read_for_a_stranger_that_its_pages_would_not_be(tmp_path: Path) -> None:
    async with serving(tmp_path) as (application, client):
        for sitemap in BAD_SITEMAPS:
            check_refused(await send(client, "POST", "/api/v1/runs", {"sitemap": sitemap}), sitemap)
            answer = await send(client, "POST", "/api/v1/runs", {"urls": [U], "sitemap": sitemap})
            assert answer.status_code == 422 or answer.json()["added"] == 1, (ascii(sitemap)[:200], answer.text[:300])
            schedule = {"name": "s", "cron": "@daily", "run": {"urls": [U], "sitemap": sitemap}}
            check_refused(await send(client, "POST", "/api/v1/schedules", schedule), sitemap)
        assert application.context is not None
        queue = application.context.queue
        waiting = [task for run in await queue.runs() for task in await queue.list_tasks(run.id)]
        assert {task.url for task in waiting} == {U}


TEMPLATE = {"name": "x", "start": [U], "pages": [{"kind": "page", "match": "/*", "fields": {"t": "h1"}}]}
BAD_TEMPLATES: list[dict[str, Any]] = [
    *({"sitemap": it} for it in ("x", "file:///etc/passwd", 7, {"a": 1}, [["x"]], "http://[", [None], "\u202e")),
    *({"settings": {"routes": [rule]}} for rule in BAD_RULES if rule.isprintable()),
    *({"settings": {name: it}} for name in ("cache", "sitemap_since", "rate", "in_flight") for it in ("x", -1, "nan")),
]  # fmt: skip


async def test_no_template_brings_what_a_submission_could_not(tmp_path: Path) -> None:
    """Refused when it is stored, or when a run is to be started with it."""
    async with serving(tmp_path) as (application, client):
        for change in BAD_TEMPLATES:
            text = yaml.safe_dump(TEMPLATE | change)
            stored = await client.put("/api/v1/templates/x", content=text, headers=BEARER)
            assert stored.status_code in (200, 201, 422), (ascii(change)[:200], stored.text[:200])
            if stored.status_code != 422:
                check_refused(await send(client, "POST", "/api/v1/runs", {"template": "x"}), change)
        assert application.context is not None
        assert await application.context.queue.runs() == []


LINES: list[bytes] = [
    b"sitemap:http://127.0.0.1/", b"sitemap:", b"sitemap:file:///etc/passwd", b"file:///etc/passwd", b"\xff\xfe", b"\0",
    b"http://169.254.169.254/", b"x" * 70_000, b"https://[", b"javascript:1", b"http://localhost:8080/", b"\x1b[2J",
]  # fmt: skip
OBJECTS: list[dict[str, Any]] = [
    {"url": "sitemap:http://10.1.1.1"}, {"url": U, "kind": "sitemap"}, {"url": U, "lane": 1}, {"url": U, "proxy": ""},
    {"url": U, "request_options": {}}, {"url": U, "cache": 60}, {"url": U, "rule_session": "x"}, {"url": U, "id": 1},
    {"url": U, "needs": ["../x"]}, {"url": U, "needs": list("abcdef")}, {"url": U, "ttl": 0}, {"url": U, "ttl": 1e300},
    {"url": U, "delay": -1}, {"url": U, "ack": "x"}, {"url": U, "priority": 10**7}, {"url": U, "method": "GET X"},
    {"url": U, "headers": {"Content-Length": "0"}}, {"url": U, "headers": {"Host": "evil"}}, {"url": U, "body": 1},
    {"url": U, "headers": {"a b": "c"}}, {"url": U, "headers": {"Authorization": "x"}}, {"url": U, "auth": "shop"},
    {"url": U, "headers": {"TE": "x"}}, {"url": U, "revisit": True}, {"url": U, "from_raw": True}, [U], U, 1, None,
]  # fmt: skip


async def test_no_line_of_a_stream_becomes_a_task_that_it_may_not_be(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        started = {"more": True, "fields": {"t": "h1"}, "routes": ["*/urgent/* priority=10", "* session=s"]}
        name = (await send(client, "POST", "/api/v1/runs", started)).json()["run"]
        path = f"/api/v1/runs/{name}/tasks?last=false"
        for kind, lines in (
            ("text/plain", LINES),
            (
                "application/x-ndjson",
                [*(json.dumps(it).encode() for it in OBJECTS), b"{" * 9000, b'{"url": "\\ud800"}'],
            ),
        ):
            answer = await client.post(path, content=b"\n".join(lines), headers=BEARER | {"Content-Type": kind})
            told = answer.json()
            assert answer.status_code == 200 and told["added"] == 0, told
            assert told["rejected"] == told["read"] >= len(lines) - 1  # an empty line is none


FORMS: list[dict[str, str]] = [
    *({"routes": rule} for rule in BAD_RULES if "\ud800" not in rule),
    *({"rate": rate} for rate in ("1e-320", "nan", "-1", "1/x", HUGE + "e999")),
    *({"max_pages": it} for it in ("-1", "1e300", "x", HUGE)), *({"priority": it} for it in ("x", HUGE, "1e300")),
    {"urls": "sitemap:http://127.0.0.1/"}, {"urls": "http://10.0.0.1/", "sitemap": "1"}, {"name": "../x"},
    {"fields": "=h1"}, {"fields": "t = xpath:re:test(1,2)"}, {"what": "template", "template": "../x"},
    {"what": "scraper", "scraper": "os;system"}, {"urls": ""},
]  # fmt: skip


async def test_the_form_refuses_what_the_api_refuses_and_shows_it_as_text(tmp_path: Path) -> None:
    async with serving(tmp_path) as (application, client):
        await client.post("/login", data={"token": OWN})
        shown = await client.get("/submit")
        word = re.findall(r'name="csrf" (?:content|value)="(\w+)"', shown.text)[0]
        whole = {"csrf": word, "urls": U, "what": "fields", "fields": "t = h1", "priority": "0"}
        for form in FORMS:
            answer = await client.post("/submit", data=whole | form)
            assert answer.status_code in (200, 422), (ascii(form)[:200], answer.status_code)
            assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\u202e]", answer.text), ascii(form)[:200]
        assert application.context is not None
        assert await application.context.queue.runs() == []


SCHEDULES: list[dict[str, Any]] = [
    *({"cron": it} for it in ("", "* * * *", "every 0s", "every -1m", "@never", "*/0 * * * *", "99 * * * *")),
    *({"cron": it} for it in ("0 3 * * */9999999999", "every 1e300d", "1-99999999999 * * * *", "," * 400, "x" * 500)),
    *({"zone": it} for it in ("../../etc/passwd", "/etc/localtime", "Europe/Nowhere", "\u202e", "x" * 400)),
    *({"name": it} for it in ("", "../x", "a b", "x" * 65, "\u202e")), {"overlap": "both"}, {"x": 1},
    *({"run": {"urls": [U], name: it}} for name, it in (("here", True), ("more", True), ("key", "k"), ("x", 1))),
    {"run": {"urls": [U], "hooks": [{"url": "https://hook.example/"}]}}, {"run": {}}, {"run": {"urls": ["x y"]}},
]  # fmt: skip
HOOKS: list[dict[str, Any]] = [
    *({"url": it} for it in ("http://127.0.0.1/", "file:///x", "https://u:p@hook.example/", "x", "http://[", "\u202e")),
    *({"url": it} for it in ("http://169.254.169.254/", "http://localhost/")),
    {"events": []}, {"events": ["started"]}, {"events": ["finished"] * 5}, {"stalled_after": 1}, {"stalled_after": 1e9},
    {"secret": "../x"}, {"secret": "shop"}, {"secret": "hook_unknown"}, {"id": "x"}, {"seal": "x"}, {"key": "x"},
]  # fmt: skip


async def test_no_schedule_or_webhook_is_made_that_could_only_do_harm(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        for change in SCHEDULES:
            schedule = {"name": "s", "cron": "@daily", "run": {"urls": [U]}} | change
            check_refused(await send(client, "POST", "/api/v1/schedules", schedule), change)
        for change in HOOKS:
            hook = {"url": "https://hook.example/"} | change
            check_refused(await send(client, "POST", "/api/v1/hooks", hook), change)
            check_refused(await send(client, "POST", "/api/v1/runs", {"urls": [U], "hooks": [hook]}), change)
        for path in ("/api/v1/schedules", "/api/v1/hooks", "/api/v1/runs"):
            assert (await client.get(path, headers=BEARER)).json()["items"] == [], path


async def test_a_schedule_of_the_api_keeps_its_retention_of_dead_letters(tmp_path: Path) -> None:
    async with serving(tmp_path) as (application, client):
        run = {"urls": [U], "settings": {"dead_retention": "2h"}}
        assert (await send(client, "POST", "/api/v1/schedules", {"name": "s", "cron": "@daily", "run": run})).is_success
        assert (await client.post("/api/v1/schedules/s/run", headers=BEARER)).is_success
        assert application.context is not None
        assert [it.dead_retention for it in await application.context.queue.runs()] == [7200.0]


QUERIES: list[tuple[str, str, Sequence[int]]] = [
    *(
        ("DELETE", f"/api/v1/cache?{query}", (200, 422))
        for query in ("host=%25", "host=%00", "host=*", "host=" + "x" * 301, "url=x", "url=http://[", "url=%1b")
    ),
    *(("DELETE", f"/api/v1/cache?{query}", (422,)) for query in ("hosts=x", "host=a&url=http://b", "url=" + HUGE * 11)),
    *(
        ("GET", f"/api/v1/runs/books/changes?cursor={cursor}", (409, 422))
        for cursor in ("x", "%00", "-1", "9" * 400, "eyJhIjoxfQ", "../x")
    ),
    ("GET", "/api/v1/cache?x=1", (422,)), ("GET", "/api/v1/runs/nobody/changes", (404,)),
    *(("GET", f"/api/v1/runs/books/dead?{query}", (422,)) for query in ("failures=x", "failures=-1", "limit=0")),
]  # fmt: skip
PACES: list[dict[str, Any]] = [
    {"rate": 1e-320}, {"rate": 1e-300}, {"rate": 0}, {"delay": -1}, {"delay": 1e300}, {"in_flight": 10**7},
    {"rate": 1e9},
]  # fmt: skip


async def test_no_query_or_pace_has_the_server_stumble(tmp_path: Path) -> None:
    async with serving(tmp_path) as (application, client):
        assert application.context is not None
        await application.context.queue.start_run(NewRun("books", "key", name="books"))
        for method, path, expected in QUERIES:
            answer = await client.request(method, path, headers=BEARER)
            assert answer.status_code in expected, (path, answer.status_code, answer.text[:200])
        await send(client, "POST", "/api/v1/runs", {"urls": [U]})
        for pace in PACES:
            check_refused(await send(client, "POST", "/api/v1/hosts/shop.example/pace", pace), pace)


async def test_the_command_beside_the_changes_of_a_run_does_only_that_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def changes(*_: Any) -> str:
        return "3 new"

    monkeypatch.setattr("shoal.web.pages.run.changes", changes)
    async with serving(tmp_path) as (application, client):
        assert application.context is not None
        name = "books; touch \u202ex"
        await application.context.queue.start_run(NewRun("books", "key", name=name))
        shown = (await client.get(f"/runs/{quote(name)}", headers=BEARER)).text
        assert "shoal changes &#39;books; touch ‹U+202E›x&#39;" in shown


async def test_no_message_of_a_worker_brings_more_than_the_queue_can_bear(tmp_path: Path) -> None:
    async with serving(tmp_path, cache_size="100000") as (application, client):
        headers = BEARER | {"Content-Type": MEDIA_TYPE}

        async def call(verb: str, args: Sequence[Any], named: dict[str, Any]) -> httpx.Response:
            return await client.post(f"{PATH}/{verb}", content=VERBS[verb].pack(args, named), headers=headers)

        for verb, args, named in MESSAGES:
            answer = await call(verb, args, named)
            assert answer.status_code == 422, (verb, ascii((args, named))[:100], answer.text[:200])
        for verb, args, named in RESERVED:
            assert (await call(verb, args, named)).status_code == 403, (verb, args)
        for verb, content in NO_VERBS:
            answer = await client.post(f"{PATH}/{verb}", content=content, headers=headers)
            assert answer.status_code in (404, 422), (verb, content, answer.text[:200])
        # A worker's own bound is not that of the machine which keeps the queue.
        for number in range(100):
            await call("cache_put", (entry(key=b"%d" % number, data=b"x" * 5000), 2**62), {})
        assert application.context is not None
        assert 0 < (await application.context.queue.cache_stats()).bytes <= 100_000


def test_a_long_part_of_a_pattern_is_not_compared_anew_at_every_letter() -> None:
    assert not Glob("*" + "a" * 300_000 + "b*").fullmatch("a" * 2_000_000)  # else it would take hours


async def test_others_are_answered_while_a_list_is_matched_with_slow_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "MAX_HOLD", 0.0)  # every URL takes too long
    rules = [f"/*{'a' * 200}*{'a' * 200}{n}b* priority=1" for n in range(50)]
    urls = [f"{U}{'a' * 1000}{n}" for n in range(50)]
    async with serving(tmp_path) as (_, client):
        for path, body in (
            ("/api/v1/runs", {"urls": urls, "routes": rules}),
            ("/api/v1/schedules", {"name": "s", "cron": "@daily", "run": {"urls": urls, "routes": rules}}),
            ("/api/crawl/batch", {"urls": urls, "distributed": True, "timeout": 0.01, "options": {"routes": rules}}),
        ):
            asked, between = asyncio.create_task(send(client, "POST", path, body)), 0
            while not asked.done():
                await asyncio.sleep(0)
                between += 1
            assert (await asked).is_success and between > len(urls), (path, between)


def test_there_are_more_than_three_hundred() -> None:
    def count(*tables: Iterable[Any]) -> int:
        return sum(len(list(table)) for table in tables)

    settings = sum(map(len, BAD_SETTINGS.values()))
    rules = 3 * len(BAD_RULES) + count(BAD_RULE_OBJECTS, ODD_RULES)
    rest = count(BAD_TEMPLATES, LINES, OBJECTS, FORMS, SCHEDULES, QUERIES, PACES, MESSAGES)
    assert rules + 2 * settings + 3 * len(BAD_SITEMAPS) + 2 * len(HOOKS) + rest > 600
