"""Looking and acting over the API: pages, filters, and what people do to runs, hosts and workers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sample_queue
from backend_urls import QUEUE_KINDS, backend_url
from server_process import ServerProcess, running_server
from shell_user import ShellUser

from shoal.web.api.paging import make_cursor

DONE, DEAD, READY = 30, 20, 50


@pytest.fixture(scope="module", params=QUEUE_KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One of every kind of queue, whose run nobody changes."""
    folder = tmp_path_factory.mktemp("lists")
    url = backend_url(request.param, folder)
    sample_queue.create(folder, "first", url, done=1, dead=3, ready=0)
    sample_queue.create(folder, "r1", url, done=DONE, dead=DEAD, ready=READY)
    with running_server(url, "--no-maintenance", folder=folder) as made:
        yield made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ServerProcess]:
    """One to be changed."""
    sample_queue.create(tmp_path, "r1", done=4, dead=6, ready=10)
    with running_server(sample_queue.state_url(tmp_path), "--no-maintenance") as made:
        yield made


def whole(server: ServerProcess, path: str, **params: Any) -> list[dict[str, Any]]:
    """All items of a list, page by page."""
    items: list[dict[str, Any]] = []
    make_cursor = ""
    for _ in range(200):
        page = server.ask(path, params=params | ({"cursor": make_cursor} if make_cursor else {}))
        items += page["items"]
        make_cursor = page["next"]
        if not make_cursor:
            return items
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    ("path", "key", "count"),
    [
        ("/api/v1/runs", "name", 2),
        ("/api/v1/runs/r1/tasks", "id", DONE + DEAD + READY),
        ("/api/v1/runs/r1/dead", "id", DEAD),
        ("/api/v1/runs/r1/records", "seq", DONE * 2),
        ("/api/v1/hosts?order=name", "name", 10),
        ("/api/v1/workers", "id", 1),
    ],
)
@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_pages_together_are_the_whole_list_each_item_once(
    server: ServerProcess, path: str, key: str, count: int, limit: int
) -> None:
    path, _, order = path.partition("?")
    more = {"order": "name"} if order else {}
    found = [item[key] for item in whole(server, path, limit=limit, **more)]
    assert len(found) == len(set(found)) == count


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ({"state": "done"}, DONE),
        ({"state": "dead"}, DEAD),
        ({"state": "ready"}, READY),
        ({"state": "leased"}, 0),
        ({"host": "h3.example"}, (DONE + DEAD + READY) // 10),
        ({"cause": "http.5*"}, DEAD // 2),
        ({"cause": "http.404"}, DEAD // 2),
        ({"url": "https://h1.example/*"}, (DONE + DEAD + READY) // 10),
        ({"url": "https://h1.example/p1"}, 1),
        ({"url": "https://nowhere.example/"}, 0),
        ({"state": "ready", "host": "h3.example", "url": "*p*3"}, None),
    ],
)
def test_filters_find_what_they_say(server: ServerProcess, params: dict[str, str], count: int | None) -> None:
    found = whole(server, "/api/v1/runs/r1/tasks", **params, limit=3)
    if count is not None:
        assert len(found) == count
    for item in found:
        assert item["state"] == params.get("state", item["state"])
        assert item["host"] == params.get("host", item["host"])


def test_runs_are_listed_newest_first_by_state_scraper_and_name(server: ServerProcess) -> None:
    assert [run["name"] for run in whole(server, "/api/v1/runs")] == ["r1", "first"]
    assert [run["name"] for run in whole(server, "/api/v1/runs", name="fir")] == ["first"]
    assert whole(server, "/api/v1/runs", scraper="nope") == []
    assert whole(server, "/api/v1/runs", state="finished") == []
    assert len(whole(server, "/api/v1/runs", state=["running", "paused"])) == 2


def test_the_account_of_a_run_is_that_of_the_queue(server: ServerProcess) -> None:
    found = server.ask("/api/v1/runs/r1")
    assert (found["done"], found["dead"], found["ready"]) == (DONE, DEAD, READY)
    assert found["balanced"]
    assert found["records"] == DONE * 2
    fleet = server.ask("/api/v1/fleet")
    assert fleet["totals"]["done"] == DONE + 1


def test_dead_letters_are_grouped_by_host_and_cause(server: ServerProcess) -> None:
    groups = server.ask("/api/v1/runs/r1/dead/groups", params={"limit": 1000})["items"]
    assert sum(group["count"] for group in groups) == DEAD
    assert server.ask("/api/v1/dead", params={"limit": 1000})["items"][0]["run"] == "r1"


def group_of(item: dict[str, Any]) -> tuple[str, str, str, int]:
    return item["run"], item["host"], item["cause"], item["count"]


def test_groups_of_dead_letters_come_page_by_page_the_newest_run_first(server: ServerProcess) -> None:
    for path, total in (("/api/v1/dead", DEAD + 3), ("/api/v1/runs/r1/dead/groups", DEAD)):
        once = [group_of(item) for item in server.ask(path, params={"limit": 1000})["items"]]
        assert len(once) == len(set(once)) and sum(count for *_, count in once) == total
        runs = [run for run, *_ in once]
        assert runs == sorted(runs, reverse=True)
        for limit in (1, 2, len(once), len(once) + 1):
            assert [group_of(item) for item in whole(server, path, limit=limit)] == once
    largest = server.ask("/api/v1/dead", params={"order": "count", "limit": 2})
    counts = [item["count"] for item in server.ask("/api/v1/dead", params={"limit": 1000})["items"]]
    assert [item["count"] for item in largest["items"]] == sorted(counts, reverse=True)[:2]


@pytest.mark.parametrize("at", ["x", "1", "1.", "-1.0", "1.0000", "٣.1", "9" * 19 + ".1", ""])
def test_a_made_up_place_in_the_groups_is_refused(server: ServerProcess, at: str) -> None:
    answer = server.get("/api/v1/dead", params={"cursor": make_cursor("dead", at)})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:shoal:problem:invalid-cursor")


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("/api/v1/runs?limt=5", "did you mean limit?"),
        ("/api/v1/runs/r1/tasks?limit=5&sate=dead", "did you mean state?"),
        ("/api/v1/runs/r1?verbose", "it takes none"),
        ("/api/v1/events?topics=fleet", "did you mean topic?"),
        ("/stats?%00=1", "it takes none"),
    ],
)
def test_a_parameter_that_is_not_known_is_refused_with_the_nearest_one(
    server: ServerProcess, asked: str, hint: str
) -> None:
    answer = server.get(asked)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    told = answer.json()
    assert told["detail"].endswith("unknown") and told["hint"] == hint


def test_pages_probes_and_scrapes_may_bring_parameters_of_their_own(server: ServerProcess) -> None:
    for asked in ("/runs?limt=5", "/health?x=1", "/api/health?x=1", "/metrics?x=1"):
        assert server.get(asked).status_code == 200, asked


def test_nothing_is_done_for_a_question_that_is_not_understood(own: ServerProcess) -> None:
    assert own.post("/api/v1/runs/r1/pause?dry_run=1").status_code == 422
    assert own.ask("/api/v1/runs/r1")["state"] == "running"


def test_a_task_is_found_by_its_url_and_by_its_id_with_its_whole_story(server: ServerProcess) -> None:
    (found,) = server.ask("/api/v1/search", params={"q": "https://h1.example/p1", "run": "r1"})["items"]
    assert found["run"] == "r1"
    story = server.ask(f"/api/v1/tasks/{found['id']}")
    assert story["url"] == "https://h1.example/p1"
    assert story["reason"]
    (again,) = server.ask("/api/v1/search", params={"q": str(found["id"])})["items"]
    assert again["id"] == found["id"]
    assert server.ask("/api/v1/search", params={"q": "https://other.example/"})["items"] == []


def test_records_come_as_jsonl_and_csv_and_go_on_where_they_stopped(server: ServerProcess) -> None:
    plain = server.get("/api/v1/runs/r1/records.jsonl").text.splitlines()
    assert len(plain) == DONE * 2
    numbered = server.get("/api/v1/runs/r1/records.jsonl?seq=true").text.splitlines()
    half = json.loads(numbered[DONE - 1])["seq"]
    rest = server.get(f"/api/v1/runs/r1/records.jsonl?after={half}").text.splitlines()
    assert plain[:DONE] + rest == plain
    answer = server.get("/api/v1/runs/r1/records.csv")
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert rows[0] == ["url", "n", "text"]
    assert len(rows) == DONE * 2 + 1
    assert "attachment" in answer.headers["content-disposition"]
    assert {row[2] for row in rows[1:]} == {"=1+1"}
    assert "'=1+1" in server.get("/api/v1/runs/r1/records.csv?safe=true").text
    some = server.get(f"/api/v1/runs/r1/records.csv?after={half}&columns=n,url").text
    assert len(list(csv.reader(io.StringIO(some)))) == DONE


def test_hosts_are_found_by_a_part_of_the_name(server: ServerProcess) -> None:
    assert [host["name"] for host in whole(server, "/api/v1/hosts", like="H3")] == ["h3.example"]
    assert len(whole(server, "/api/v1/hosts", run="r1", order="name", limit=4)) == 10
    assert server.get("/api/v1/hosts/h33.example").status_code == 404


def test_what_is_done_is_seen_at_once_and_kept_with_who_did_it(own: ServerProcess) -> None:
    before = own.ask("/api/v1/runs/r1")
    assert own.post("/api/v1/runs/r1/pause").json()["state"] == "paused"
    assert own.ask("/api/v1/runs/r1")["state"] == "paused"
    assert own.post("/api/v1/runs/r1/resume").json()["state"] == "running"
    assert own.delete("/api/v1/runs/r1").status_code == 409
    assert own.post("/api/v1/runs/r1/cancel").json()["state"] == "cancelled"
    assert own.post("/api/v1/runs/r1/resume").status_code == 422
    back = own.post("/api/v1/runs/r1/undo").json()
    assert (back["state"], back["ready"], back["cancelled"]) == ("running", before["ready"], before["cancelled"])
    refused = own.post("/api/v1/runs/r1/undo")
    assert (refused.status_code, "no cancel to undo" in refused.text) == (422, True)
    assert own.post("/api/v1/runs/r1/cancel").json()["state"] == "cancelled"
    assert own.delete("/api/v1/runs/r1").status_code == 200
    assert own.get("/api/v1/runs/r1").status_code == 404
    done = own.ask("/api/v1/actions")["items"]
    assert [action["what"] for action in done] == ["purge", "cancel", "undo", "cancel", "resume", "pause"]
    assert {action["who"] for action in done} == {"this machine"}


def test_reviving_by_filter_says_first_how_many_and_then_does_it(own: ServerProcess) -> None:
    which = {"cause": "http.5*"}
    would = own.post("/api/v1/runs/r1/revive", which | {"dry_run": True}).json()
    assert would == {"run": "r1", "count": 3, "more": False, "dry_run": True}
    assert own.ask("/api/v1/runs/r1")["dead"] == 6
    assert own.post("/api/v1/runs/r1/revive", which).json()["count"] == 3
    assert own.ask("/api/v1/runs/r1")["dead"] == 3
    assert own.post("/api/v1/runs/r1/revive", {"all": True}).json()["count"] == 3
    assert own.ask("/api/v1/runs/r1")["ready"] == 16


def test_dropping_gives_up_what_waits_and_nothing_else(own: ServerProcess) -> None:
    assert own.post("/api/v1/runs/r1/drop", {"host": "h3.example", "dry_run": True}).json()["count"] == 1
    assert own.post("/api/v1/runs/r1/drop", {"host": "h3.example"}).json()["count"] == 1
    assert own.post("/api/v1/runs/r1/drop", {"all": True, "state": "dead"}).json()["count"] == 6
    assert own.post("/api/v1/runs/r1/drop", {"all": True}).json()["count"] == 9
    found = own.ask("/api/v1/runs/r1")
    assert (found["ready"], found["dead"], found["cancelled"], found["done"]) == (0, 0, 16, 4)
    assert own.post("/api/v1/runs/r1/drop", {"url": "*", "state": "ready"}).json()["count"] == 0


def test_one_task_is_revived_or_dropped_by_its_id(own: ServerProcess) -> None:
    dead, *_ = own.ask("/api/v1/runs/r1/tasks", params={"state": "dead"})["items"]
    assert own.post(f"/api/v1/tasks/{dead['id']}/revive").json()["count"] == 1
    assert own.post(f"/api/v1/tasks/{dead['id']}/revive").status_code == 409
    assert own.post(f"/api/v1/tasks/{dead['id']}/drop").json()["count"] == 1
    assert own.post(f"/api/v1/tasks/{dead['id']}/drop").status_code == 409
    assert own.ask(f"/api/v1/tasks/{dead['id']}")["state"] == "cancelled"
    assert own.post("/api/v1/tasks/99/drop").status_code == 404


def test_hosts_are_parked_released_and_paced(own: ServerProcess) -> None:
    host = "/api/v1/hosts/h1.example"
    assert own.post(f"{host}/park", {"seconds": 60, "reason": "their sale"}).json()["parked"]
    found = own.ask(host)
    assert (found["parked"], found["reason"]) == (True, "their sale")
    assert len(own.ask("/api/v1/hosts", params={"only": "parked"})["items"]) == 1
    would = own.post("/api/v1/hosts/release", {"all": True, "dry_run": True}).json()
    assert would["names"] == ["h1.example"]
    own.post("/api/v1/hosts/release", {"all": True})
    assert not own.ask(host)["parked"]
    paced = own.post(f"{host}/pace", {"rate": 2, "in_flight": 3}).json()
    assert (paced["rule"], paced["limit"], paced["set_by"]) == (0.5, 3, "a person")
    assert own.post(f"{host}/pace", {"reset": True}).json()["rule"] is None


def test_hosts_are_changed_by_filter(own: ServerProcess) -> None:
    would = own.post("/api/v1/hosts/park", {"like": "H1", "dry_run": True}).json()
    assert would == {"names": ["h1.example"], "count": 1, "more": False, "next": None, "dry_run": True}
    assert own.ask("/api/v1/hosts", params={"only": "parked"})["items"] == []
    names = [host["name"] for host in own.ask("/api/v1/hosts", params={"order": "name"})["items"]]
    parked = own.post("/api/v1/hosts/park", {"all": True, "seconds": 60, "reason": "a test"}).json()
    assert (parked["count"], parked["names"]) == (len(names), names)
    rest = own.post("/api/v1/hosts/park", {"all": True, "after": names[0], "dry_run": True}).json()
    assert rest["names"] == names[1:]
    picked = {"hosts": [names[0], "nowhere.example"]}
    assert own.post("/api/v1/hosts/release", picked).json()["names"] == names[:1]
    assert len(own.ask("/api/v1/hosts", params={"only": "parked"})["items"]) == len(names) - 1
    assert own.post("/api/v1/hosts/release", {"all": True}).json()["names"] == names[1:]
    assert own.post("/api/v1/hosts/pace", {"like": "h1", "rate": 2}).json()["names"] == ["h1.example"]
    overridden = {"only": "overridden", "reset": True}
    assert own.post("/api/v1/hosts/pace", overridden | {"like": "h2"}).json()["count"] == 0
    assert own.post("/api/v1/hosts/pace", overridden).json()["names"] == ["h1.example"]
    newest = own.ask("/api/v1/actions")["items"][0]
    assert (newest["what"], newest["about"], newest["more"]["count"]) == ("pace", "all overridden hosts", 1)


def test_hosts_are_not_changed_by_who_does_not_say_which_or_what(own: ServerProcess) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("park", {}),
        ("release", {"dry_run": True}),
        ("park", {"all": True, "like": "h1"}),
        ("pace", {"all": True}),
        ("pace", {"all": True, "rate": 1, "delay": 1}),
        ("park", {"all": True, "seconds": -1}),
    ]
    for verb, body in wrong:
        assert own.post(f"/api/v1/hosts/{verb}", body).status_code == 422, (verb, body)
    assert own.ask("/api/v1/actions")["items"] == []


def test_workers_hear_what_is_asked_of_them(own: ServerProcess) -> None:
    assert own.post("/api/v1/workers/node1/pause").json()["names"] == ["node1-1"]
    assert own.ask("/api/v1/workers/node1-1")["state"] == "paused"
    assert own.post("/api/v1/workers/node1-1/resume").json()["names"] == ["node1-1"]
    assert own.post("/api/v1/workers/drain", {"like": "node", "dry_run": True}).json()["names"] == ["node1-1"]
    assert own.ask("/api/v1/workers/node1-1")["asked"] == ""
    own.post("/api/v1/workers/drain", {"all": True})
    assert own.ask("/api/v1/workers/node1-1")["asked"] == "drain"
    assert own.post("/api/v1/workers/nobody/drain").status_code == 404


def test_many_runs_are_steered_by_filter(own: ServerProcess) -> None:
    wanted = {"action": "pause", "scraper": "books"}
    assert own.post("/api/v1/actions", wanted | {"dry_run": True}).json()["names"] == ["r1"]
    assert own.post("/api/v1/actions", wanted).json()["names"] == ["r1"]
    assert own.ask("/api/v1/runs/r1")["state"] == "paused"
    assert own.post("/api/v1/actions", {"action": "pause", "all": True}).json()["names"] == []
    assert own.post("/api/v1/actions", {"action": "resume", "runs": ["r1"]}).json()["names"] == ["r1"]


TEMPLATE = "name: shop\nstart: https://shop.example/\nfields:\n  title: {at}\n"


def test_templates_are_checked_kept_in_versions_and_shown(own: ServerProcess) -> None:
    path = "/api/v1/templates/shop"
    assert own.put(f"{path}?check=true", content=TEMPLATE.format(at="h1")).json()["checked"]
    assert own.get(path).status_code == 404
    assert own.put(path, content=TEMPLATE.format(at="h1")).json()["version"] == 1
    assert own.put(path, content=TEMPLATE.format(at="h1")).json()["version"] == 1
    assert own.put(path, content=TEMPLATE.format(at="h2")).json()["version"] == 2
    assert own.ask(f"{path}?version=1")["template"]["pages"][0]["fields"]["title"]["at"]["what"] == "h1"
    assert [one["version"] for one in own.ask(f"{path}/versions?limit=1")["items"]] == [2]
    assert [one["version"] for one in whole(own, f"{path}/versions", limit=1)] == [2, 1]
    wrong = own.put(path, content="name: shop\nfeilds: {}\n")
    assert wrong.status_code == 422
    assert 2 in [problem["line"] for problem in wrong.json()["problems"]]
    assert own.put(path, content=TEMPLATE.replace("shop", "other", 1).format(at="h1")).status_code == 422
    secret = TEMPLATE.format(at="h1") + 'settings: {header: ["Authorization: Bearer x"]}\n'
    assert own.put(path, content=secret).status_code == 422
    assert own.put(path, content="x" * 300_000).status_code == 413


def test_what_only_some_may_do_is_refused_to_others(tmp_path: Path) -> None:
    sample_queue.create(tmp_path, "r1")
    with running_server(sample_queue.state_url(tmp_path), "--no-maintenance", token="t" * 20) as server:
        read = server.post("/api/v1/tokens", {"name": "looker", "scopes": ["read"]}).json()["token"]
        operate = server.post("/api/v1/tokens", {"name": "doer", "scopes": ["operate"]}).json()["token"]

        def status(token: str, method: str, path: str, body: object = None) -> int:
            headers = {"Authorization": f"Bearer {token}"} if token else {"Authorization": ""}
            return server.client.request(method, path, json=body, headers=headers).status_code

        assert status("", "GET", "/api/v1/runs") == 401
        assert status(read, "GET", "/api/v1/runs") == 200
        assert status(read, "POST", "/api/v1/runs/r1/pause") == 403
        assert status(read, "POST", "/api/v1/runs", {"urls": ["https://a.example/"]}) == 403
        assert status(operate, "POST", "/api/v1/runs/r1/cancel") == 200
        assert status(operate, "DELETE", "/api/v1/runs/r1") == 403
        assert status(operate, "POST", "/api/v1/hooks", {"url": "https://a.example/"}) == 403
        assert server.ask("/api/v1/actions")["items"][0]["who"] == "doer"
        assert status(operate, "GET", "/api/v1/tokens") == 403
        assert status(read, "GET", "/api/v1/runs?limt=1") == 422
        assert status("", "GET", "/api/v1/runs?limt=1") == 401  # who may not ask is told nothing else
        assert not any("scopes" in action["more"] for action in server.ask("/api/v1/actions")["items"])


def test_records_are_the_same_wherever_they_are_kept_by_now(tmp_path: Path) -> None:
    sample_queue.create(tmp_path, "r1", done=40, dead=0, ready=1, records=3)
    with running_server(sample_queue.state_url(tmp_path), "--no-maintenance") as server:
        before = server.get("/api/v1/runs/r1/records.jsonl").text
        page = whole(server, "/api/v1/runs/r1/records", limit=50)
    with running_server(sample_queue.state_url(tmp_path), store=f"sqlite:///{tmp_path / 'results.db'}") as server:
        # Upkeep carries them to the store meanwhile: every look must see all of them.
        for _ in range(20):
            assert server.get("/api/v1/runs/r1/records.jsonl").text == before
        assert whole(server, "/api/v1/runs/r1/records", limit=50) == page
        assert len(server.get("/api/v1/runs/r1/records.csv").text.splitlines()) == 121
    with running_server(sample_queue.state_url(tmp_path), "--no-maintenance") as server:
        refused = server.get("/api/v1/runs/r1/records.jsonl")
        assert refused.status_code == 422
        assert "store" in refused.json()["detail"]


def test_schedules_are_shown_paused_run_now_and_removed(tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_text("https://a.example/1\nhttps://a.example/2\n")
    with ShellUser(tmp_path) as user, running_server(sample_queue.state_url(tmp_path), "--no-maintenance") as server:
        user.environment["SHOAL_QUEUE"] = sample_queue.state_url(tmp_path)
        made = user.shoal("schedule", "add", "urls.txt", "0 3 * * *", "--name", "nightly")
        assert made.code == 0, made.err
        (listed,) = server.ask("/api/v1/schedules")["items"]
        (told,) = json.loads(user.shoal("schedule", "list", "--json").out)
        assert {name: listed[name] for name in told} == told
        path = "/api/v1/schedules/nightly"
        assert server.post(f"{path}/pause").json()["paused"]
        assert server.ask(path)["next_at"] is None
        assert not server.post(f"{path}/resume").json()["paused"]
        (run,) = server.post(f"{path}/run").json()["names"]
        assert server.ask(f"/api/v1/runs/{run}")["ready"] == 2
        assert server.post(f"{path}/run").status_code == 422
        assert server.post(f"{path}/run?anyway=true").status_code == 200
        assert server.delete(path).status_code == 200
        assert server.get(path).status_code == 404
        assert server.post(f"{path}/run").status_code == 404
