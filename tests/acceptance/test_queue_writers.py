"""Whoever can write to the queue, past every server, is a stranger to its workers: what they do because of it.

Runs, tasks, templates, schedules and outbox entries are written by hand into a real queue. The worker has secrets,
and may reach three hosts: its own, and two of the attacker's. Nothing secret goes to those, nothing private is reached.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from local_fleet import LocalFleet, stop_process
from small_site import SmallSite, moved, page, small_site
from wait import wait_until

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import Attempt, OutboxEntry, Outcome, RequestOptions, Task, digest
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue

SETTINGS = """
header = ["Authorization: Bearer pw-header", "X-Api-Key: pw-api"]
[secrets]
shop = {{value = "me:pw-shop", hosts = ["{home}"]}}
free = "me:pw-free"
bearer = "pw-bearer"
way = "http://me:pw-way@{proxy}"
"""
NOT_SERVED = ("here", "single")  # modes of runs that are not for this worker
SECRETS = ("pw-header", "pw-api", "pw-shop", "pw-free", "pw-bearer", "pw-way")


@dataclass
class Scene:
    """The hosts of an attack. `inside` is private, and nobody allowed it."""

    fleet: LocalFleet
    home: SmallSite
    evil: SmallSite
    proxy: SmallSite
    inside: SmallSite
    marker: Path  # a file that code would create if it were loaded

    def fill(self, value: Any) -> Any:
        """The names of hosts and files put in, wherever they stand."""
        if isinstance(value, dict):
            return {name: self.fill(it) for name, it in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.fill(it) for it in value)
        if not isinstance(value, str):
            return value
        for name in ("home", "evil", "proxy", "inside"):
            value = value.replace(f"<{name}>", getattr(self, name).lane)
        return value.replace("<marker>", str(self.marker)).replace("<folder>", str(self.marker.parent))


@dataclass(frozen=True)
class Attack:
    url: str = "http://<evil>/"
    spec: dict[str, Any] = field(default_factory=dict)
    template: dict[str, Any] | None = None  # of the run; else it is one of the worker's own scraper
    options: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    task: dict[str, Any] = field(default_factory=dict)


def of_template(start: str = "http://<evil>/", **settings: Any) -> dict[str, Any]:
    return {"name": "t", "start": [start], "pages": [{"kind": "page"}], "settings": settings}


def with_settings(**settings: Any) -> dict[str, Any]:
    return {"settings": settings}


MACHINE_SETTINGS: dict[str, Any] = {
    "allow_private": "1", "secrets": {"shop": "x"}, "secret_hosts": {"shop": ["<evil>"], "free": ["<evil>"]},
    "queue": "http://<evil>/", "store": "sqlite:///<marker>", "token": "x", "ca_file": "<marker>", "otel": "http://<evil>/",
    "log_file": "<marker>", "scrapers": ["<marker>.py"], "sources": {"auth": "--auth"},
}  # fmt: skip

ATTACKS: list[Attack] = [
    # a run names a login of the worker
    *(Attack(spec=with_settings(auth=it), template=of_template()) for it in ("shop", "free", "FREE", "bearer", "way")),
    *(Attack(spec=with_settings(auth=name)) for name in ("shop", "free", "Bearer", "nobody", "", "me:pw", "\0")),
    *(Attack("http://<home>/", with_settings(auth=name)) for name in ("free", "bearer", "way")),
    *(Attack(template=of_template(auth=name)) for name in ("shop", "free", "bearer", "way")),
    Attack(spec=with_settings(auth="shop", header=["Host: <home>"]), template=of_template()),
    Attack(spec=with_settings(auth="shop"), template=of_template("http://<home>@<evil>/")),
    Attack(spec=with_settings(auth=["shop"]), template=of_template()),
    Attack(spec=with_settings(auth={"name": "free"})),
    # the worker's own headers, where a template says what is home
    Attack(template=of_template()),
    Attack("http://<evil>/deep", template=of_template(header=["X-Mine: 1"])),
    # a task names a login
    *(Attack(options={"auth": name}) for name in ("shop", "free", "bearer", "way", "SHOP", "nobody", " free", "../x")),
    *(Attack("http://<home>/", options={"auth": name}) for name in ("free", "bearer", "way")),
    *(Attack(options={"auth": name}, template=of_template()) for name in ("shop", "free", "bearer")),
    Attack("http://<home>/to-evil", options={"auth": "shop"}),
    Attack("http://<home>/to-evil?307", options={"auth": "shop", "method": "POST", "body": b"x"}),
    Attack("http://<home>@<evil>/", options={"auth": "shop"}),
    Attack(options={"auth": "shop", "headers": (("Host", "<home>"),)}),
    Attack("http://<evil>/", options={"auth": "shop"}, task={"lane": "<home>"}),
    # proxies
    *(Attack("http://<home>/", options={"proxy": it}) for it in ("http://<evil>", "http://me@<evil>", "free", "shop")),
    *(Attack("http://<home>/", with_settings(proxy=it)) for it in ("http://<evil>", "http://<proxy>", "free", "x")),
    Attack("http://<home>/", options={"proxy": "way", "auth": "shop"}),
    Attack("http://<inside>/", options={"proxy": "way"}),
    Attack("http://<home>/", options={"proxy": "socks5h://<evil>", "auth": "shop"}),
    Attack("http://<home>/", template=of_template("http://<home>/", proxy="http://<evil>")),
    # private addresses
    Attack("http://<inside>/"),
    Attack("http://<inside>/", MACHINE_SETTINGS),
    Attack("http://<inside>/", {"settings": MACHINE_SETTINGS}),
    Attack("http://<inside>/", {"settings": MACHINE_SETTINGS}, of_template("http://<inside>/", **MACHINE_SETTINGS)),
    Attack("http://<evil>/to-inside"),
    Attack("http://<evil>/to-file"),
    Attack("http://0x7f000001:1/"),
    Attack("http://[::ffff:127.0.0.1]:1/"),
    Attack("http://<inside>/", options={"exit": "x"}),
    *(Attack(url) for url in (
        "file:///etc/passwd", "file://<marker>", "gopher://<evil>/", "ftp://<evil>/", "dict://<evil>/", "http:///", "",
        "http://<evil>/\r\nX-Injected: 1", "HTTP://<inside>/", "http://<inside>#@<evil>/", "javascript:1",
    )),
    # paths
    *(Attack(name=name) for name in ("../../<marker>", "a/b", "/etc/x", "..", ".", "\x1b[2J", "a" * 300, "*", "~x")),
    Attack("http://<evil>/cookie", options={"session": "../../../x"}),
    Attack(spec={"output": "<marker>", "input": "<marker>", "command": "touch <marker>"}),
    Attack(spec={"from_raw": "../../x"}),
    Attack(spec={"from_raw": ["x"]}),
    # code
    Attack(spec={"code": {"target": "<marker>.py", "version": "x"}}),
    Attack(spec={"code": "<marker>.py", "scraper": "<marker>.py"}),
    Attack(spec={"scraper": "os:system", "template": "<marker>.py"}),
    Attack(task={"kind": "os.system"}),
    Attack(task={"kind": "__import__('os').system('touch <marker>')"}),
    # sitemaps, named handlers, routes, the cache and recrawls
    *(Attack(url, task={"kind": "page:sitemap"}) for url in (
        "http://<inside>/", "http://<evil>/list.xml", "http://<evil>/index.xml", "file:///etc/passwd", "http://<evil>/",
        "http://<evil>/robots.txt", "http://<evil>/to-inside",
    )),
    Attack("http://<evil>/list.xml", options={"auth": "shop", "cache": 60.0}, task={"kind": "page:sitemap"}),
    *(Attack(task={"kind": it}) for it in ("page:nothing", "page:", "page/", "page/os.system", "page/" + "x" * 300)),
    *(Attack(spec=with_settings(routes=it)) for it in (
        ["* session=../../x"], ["* ttl=nan"], [5], "x", {"a": 1}, ["* needs=auth:free"], ["* ttl=1"] * 300,
    )),
    Attack(template=of_template(routes=["* rate=1e-300"])),
    *(Attack(options={"cache": it}) for it in (-5.0, 1e300, -1.0)),
    *(Attack("http://<home>/", options={"cache": 60.0, "auth": it}) for it in ("shop", "free")),
    Attack("http://<evil>/cookie", options={"rule_session": "../../../x"}),
    *(Attack(spec=with_settings(**{name: it})) for name, it in (
        ("changed_only", True), ("cache", "http"), ("cache", 5), ("sitemap_since", "x"), ("skip_failing", 10**30),
    )),
    # what nobody would write
    *(Attack(spec={"settings": it}) for it in ([], "auth", 5, [["auth", "free"]], {"auth": None}, {"delay": []})),
    *(Attack(spec={"template": "t", "template_version": it}) for it in ("x", -1, 10**30, [], {}, 1.5, True, None)),
    *(Attack(spec={"template": it}) for it in (5, [], {"a": 1}, "\0", "x" * 9_000)),
    *(Attack(spec={"mode": it}) for it in (5, [], "here", "single", None)),
    *(Attack(spec={name: it})
        for name in ("each", "start", "api", "hooks", "home", "began_at", "time_limit", "schedule")
        for it in ("x", [1], {"a": 1}, -1)),
    *(Attack(task={"meta": it}) for it in ({"a": [[]] * 50}, {"": None}, {"payload": 5})),
]  # fmt: skip

DOCUMENTS = [
    (kinds.QUEUE, "results", '{"url": "postgresql://<evil>/x"}'),
    (kinds.QUEUE, "results2", "{"),
    (kinds.LOCK, "x", "nonsense"),
    (kinds.SEEDING, "x", "[]"),
    (kinds.FINAL_COUNTS, "1", "5"),
    (kinds.MOVING, "x", '{"to": "http://<evil>/"}'),
    (kinds.SCHEDULE, "s1", "nonsense"),
    (kinds.SCHEDULE, "s2", '{"name":"s2","cron":"@hourly","order":{"scraper":"x"},"made_at":1,"since":1,"zone":"/"}'),
    (kinds.TEMPLATE, "odd", "nonsense"),
]  # fmt: skip


@pytest.fixture
def scene(fleet: LocalFleet, tmp_path: Path) -> Iterator[Scene]:
    with small_site() as evil, small_site() as proxy, small_site() as inside:
        made = Scene(fleet, fleet.site, evil, proxy, inside, tmp_path / "loaded")
        made.marker.with_suffix(".py").write_text(f"import pathlib\npathlib.Path({str(made.marker)!r}).touch()\n")
        for site in (fleet.site, evil, proxy):
            site.default = page("here")
        fleet.site.pages["/to-evil"] = lambda hit: moved(evil.url("/got"), 307 if "307" in hit.path else 302)
        evil.pages["/to-inside"] = moved(inside.url("/"))
        evil.pages["/to-file"] = moved("file:///etc/passwd")
        evil.pages["/cookie"] = page("c", Set_Cookie="a=b")
        listed = "".join(
            f"<url><loc>{url}</loc></url>" for url in (inside.url("/a"), "file:///etc/passwd", "http://[::1]/")
        )
        evil.pages["/list.xml"] = page(f"<urlset>{listed}</urlset>")
        evil.pages["/index.xml"] = page(
            f"<sitemapindex><sitemap><loc>{inside.url('/s')}</loc></sitemap></sitemapindex>"
        )
        evil.pages["/robots.txt"] = page(f"User-agent: *\nSitemap: {inside.url('/s.xml')}\n")
        yield made


async def write(queue: Queue, scene: Scene, attack: Attack) -> str:
    """One attack as a run with one task; what the queue itself does not take is no danger."""
    spec: dict[str, Any] = {"scraper": "plain", "mode": "distributed"}
    scraper = "plain"
    if attack.template is not None:
        scraper = f"t{uuid4().hex[:8]}"
        text = json.dumps(scene.fill(attack.template))
        saved = await queue.save_document(kinds.TEMPLATE, scraper, text)
        spec |= {"template": scraper, "template_version": saved.version}
    name = scene.fill(attack.name) or f"r-{uuid4().hex[:8]}"
    run = await queue.start_run(NewRun(scraper, f"key {uuid4().hex}", name=name, spec=spec | scene.fill(attack.spec)))
    url = scene.fill(attack.url)
    options = scene.fill(attack.options)
    task: dict[str, Any] = {"lane": url.partition("://")[2].partition("/")[0] or "x"} | scene.fill(attack.task)
    if options:
        task["request_options"] = RequestOptions(**options)
    added = Task(url=url, digest=digest(url), **task)
    await queue.add(run.id, [added], {added.lane: UNLIMITED_PACE})
    return run.name


async def write_documents(queue: Queue, scene: Scene) -> None:
    for kind, name, text in DOCUMENTS:
        await queue.compare_and_swap(kind, name, scene.fill(text), 0)
    run = await queue.start_run(NewRun("else", "key of the outbox", name="outbox", spec={"mode": "single"}))
    await queue.add(run.id, [Task(url="u", lane="x", digest=digest("u"))])
    claim = await queue.claim("me", 1, serves=["else"])
    bad = Task(url="http://evil/", lane="x", digest=b"x", kind="no.such.type")
    entries = [
        b"nonsense",
        b"[]",
        b'{"task": 5}',
        msgspec.json.encode({"task": bad}),
        b'{"task":{"url":"u","lane":"l"}}',
    ]
    outbox = tuple(OutboxEntry("task", f"k{n}", data) for n, data in enumerate(entries))
    await queue.settle([Outcome(claim.tasks[0].id, claim.lease, "done", Attempt(1, "me", status=200), outbox=outbox)])


def received(site: SmallSite) -> str:
    """All that a host was told, also in other words."""
    return "\n".join(f"{hit.method} {hit.path} {hit.headers} {hit.body.decode('latin-1')}" for hit in list(site.hits))


def spellings(secret: str) -> list[str]:
    texts = (secret, f"me:{secret}", f":{secret}", f"http://me:{secret}@")
    return [secret, *(b64encode(text.encode()).decode().rstrip("=")[:-1] for text in texts[1:])]


def test_nothing_that_stands_in_a_queue_makes_a_worker_give_away_what_is_its_own(scene: Scene) -> None:
    fleet = scene.fleet

    async def write_all(queue: Queue) -> list[str]:
        await write_documents(queue, scene)
        names = [await write(queue, scene, attack) for attack in ATTACKS]
        return [it for it, attack in zip(names, ATTACKS, strict=True) if attack.spec.get("mode") not in NOT_SERVED]

    names = fleet.ask(write_all)
    folder = fleet.user.folder / "machine"
    folder.mkdir()
    (folder / "shoal.toml").write_text(SETTINGS.format(home=scene.home.lane, proxy=scene.proxy.lane))
    (folder / fleet.scraper()).write_text((fleet.user.folder / "plain.py").read_text())
    log = fleet.user.folder / "log"
    worker = fleet.user.start(
        "worker", "plain.py", "--log-file", str(log), "--ignore-robots", "--retries", "0", "--log-format", "json",
        folder=folder, SHOAL_ALLOW_PRIVATE=f"{scene.home.lane},{scene.evil.lane},{scene.proxy.lane}",
    )  # fmt: skip

    async def open_runs(queue: Queue) -> list[str]:
        runs = [run for run in await queue.runs(limit=10_000) if run.name in names and run.state == "running"]
        stats = await queue.stats_of([run.id for run in runs])
        return [run.name for run, account in zip(runs, stats, strict=True) if account.open]

    def is_dealt_with() -> bool:
        assert worker.poll() is None, worker.communicate()
        lines = log.read_text().splitlines() if log.exists() else []
        refused = {json.loads(line).get("run") for line in lines if '"run_refused"' in line}
        left = [name for name in fleet.ask(open_runs) if name not in refused]
        return not left

    wait_until(is_dealt_with, every=0.5)
    done = stop_process(worker)
    assert done.code == 0, done.err
    for site, own in ((scene.evil, ""), (scene.proxy, "pw-way"), (scene.inside, "")):
        told = received(site)
        assert [it for secret in SECRETS if secret != own for it in spellings(secret) if it in told] == []
    assert scene.inside.hits == []
    told = received(scene.home)
    assert [it for secret in ("pw-free", "pw-bearer", "pw-way") for it in spellings(secret) if it in told] == []
    assert not scene.marker.exists()
    assert not any(secret in log.read_text() for secret in SECRETS)
    assert scene.evil.hits  # they would have been told
