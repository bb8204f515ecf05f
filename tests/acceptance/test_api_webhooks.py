"""Webhooks: the end of a run is delivered, signed, at least once, and retried until it is accepted."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sample_queue
from server_process import ServerProcess, running_server
from small_site import Hit, SmallSite, small_site
from wait import wait_until

from shoal.app import open_queue
from shoal.config.load import load
from shoal.control import webhooks
from shoal.control.signing_key import derived_key
from shoal.control.webhooks import Webhook, verify
from shoal.web.webhooks import WebhookSender, stall_detector, webhook_dispatcher


@pytest.fixture
def site() -> Iterator[SmallSite]:
    with small_site() as made:
        made.pages["/hook"] = (204, {}, b"")
        yield made


@pytest.fixture
def server(tmp_path: Path, site: SmallSite) -> Iterator[ServerProcess]:
    with running_server(sample_queue.state_url(tmp_path), allow_private=site.lane) as made:
        yield made


def submitted(server: ServerProcess, hook: dict[str, Any]) -> dict[str, Any]:
    answer = server.post("/api/v1/runs", {"urls": ["https://a.example/"], "hooks": [hook]})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def deliveries(site: SmallSite, path: str = "/hook") -> list[Hit]:
    return [hit for hit in site.hits_for(path) if hit.method == "POST"]


def test_the_end_of_a_run_is_told_once_and_signed(server: ServerProcess, site: SmallSite) -> None:
    made = submitted(server, {"url": site.url("/hook")})
    server.post(f"/api/v1/runs/{made['run']}/cancel")
    wait_until(lambda: deliveries(site))
    (hit,) = deliveries(site)
    secret = made["hooks"][0]["secret"]
    signature = hit.headers["x-shoal-signature"]
    assert verify(hit.body, signature, secret)
    assert not verify(hit.body + b" ", signature, secret)
    assert not verify(hit.body, signature, "whsec_other")
    assert not verify(hit.body, signature, secret, now=0)
    assert not verify(hit.body, "nonsense", secret)
    message = json.loads(hit.body)
    assert (message["event"], message["run"]["name"]) == ("cancelled", made["run"])
    assert hit.headers["x-shoal-delivery"] == message["id"]
    wait_until(lambda: server.ask("/api/v1/hooks/deliveries")["items"][0]["state"] == "delivered")
    (delivery,) = server.ask("/api/v1/hooks/deliveries")["items"]
    assert (delivery["tries"], delivery["status"], delivery["run"]) == (1, 204, made["run"])


def test_a_webhook_of_the_fleet_is_told_of_every_run_and_only_what_it_asked_for(
    server: ServerProcess, site: SmallSite
) -> None:
    answer = server.post("/api/v1/hooks", {"url": site.url("/hook"), "events": ["cancelled"]})
    assert answer.status_code == 201
    assert answer.json()["secret"].startswith("whsec_")
    site.pages["/finished"] = (200, {}, b"")
    server.post("/api/v1/hooks", {"url": site.url("/finished"), "events": ["finished"]})
    names = set()
    for _ in range(3):
        name = server.post("/api/v1/runs", {"urls": ["https://a.example/"]}).json()["run"]
        server.post(f"/api/v1/runs/{name}/cancel")
        names.add(name)
    wait_until(lambda: len(deliveries(site)) >= 3)
    assert {json.loads(hit.body)["run"]["name"] for hit in deliveries(site)} == names
    assert deliveries(site, "/finished") == []
    (listed, _) = server.ask("/api/v1/hooks")["items"]
    assert "secret" not in listed
    assert listed["url"].endswith("/…")
    assert server.delete(f"/api/v1/hooks/{answer.json()['id']}").status_code == 200
    assert len(server.ask("/api/v1/hooks")["items"]) == 1


def test_one_that_fails_is_told_again_and_redirects_are_not_followed(server: ServerProcess, site: SmallSite) -> None:
    site.pages["/hook"] = (302, {"Location": site.url("/secret")}, b"")
    made = submitted(server, {"url": site.url("/hook")})
    server.post(f"/api/v1/runs/{made['run']}/cancel")
    wait_until(lambda: server.ask("/api/v1/hooks/deliveries")["items"][:1])
    wait_until(lambda: server.ask("/api/v1/hooks/deliveries")["items"][0]["status"] == 302)
    (delivery,) = server.ask("/api/v1/hooks/deliveries")["items"]
    assert (delivery["state"], delivery["tries"]) == ("waiting", 1)
    assert delivery["next_at"]
    assert deliveries(site, "/secret") == site.hits_for("/secret") == []
    site.pages["/hook"] = (200, {}, b"")
    wait_until(lambda: len(deliveries(site)) == 2)
    wait_until(lambda: server.ask("/api/v1/hooks/deliveries")["items"][0]["state"] == "delivered")


def test_a_name_that_leads_to_a_private_address_is_refused_when_it_is_connected_to(
    tmp_path: Path, site: SmallSite
) -> None:
    """A name that looks public at the door is judged again by the address behind it."""
    queue = sample_queue.state_url(tmp_path)
    with running_server(queue, "--no-maintenance", allow_private=site.lane) as lenient:
        made = submitted(lenient, {"url": site.url("/hook")})
        lenient.post(f"/api/v1/runs/{made['run']}/cancel")
    with running_server(queue) as strict:
        wait_until(lambda: strict.ask("/api/v1/hooks/deliveries")["items"][:1])
        wait_until(lambda: strict.ask("/api/v1/hooks/deliveries")["items"][0]["state"] == "given_up")
        assert "private" in strict.ask("/api/v1/hooks/deliveries")["items"][0]["error"]
    assert deliveries(site) == []


def test_what_was_not_told_when_the_server_died_is_told_by_the_next(tmp_path: Path, site: SmallSite) -> None:
    queue = sample_queue.state_url(tmp_path)
    with running_server(queue, "--no-maintenance", allow_private=site.lane) as first:
        made = submitted(first, {"url": site.url("/hook")})
        first.post(f"/api/v1/runs/{made['run']}/cancel")
        first.stop(signal.SIGKILL)
    with running_server(queue, allow_private=site.lane) as one, running_server(queue, allow_private=site.lane) as two:
        wait_until(lambda: deliveries(site))
        for server in (one, two):
            wait_until(lambda: server.ask("/api/v1/hooks/deliveries")["items"][0]["state"] == "delivered")  # noqa: B023
    assert len(deliveries(site)) == 1


async def test_a_stall_is_told_signed_and_with_figures(tmp_path: Path, site: SmallSite) -> None:
    settings = load({"queue": sample_queue.state_url(tmp_path), "allow_private": site.lane}, env={})
    queue, sender = await open_queue(settings), WebhookSender(settings)
    try:
        await sample_queue.add_run(queue, "r1", done=1, dead=0, ready=4)
        await webhooks.add(queue, Webhook("h1", site.url("/hook"), ("stalled",), stalled_after=0))
        for _ in range(3):
            await stall_detector(queue, settings).run_once()
            await webhook_dispatcher(queue, settings, sender).run_once()
        key = await derived_key(queue, "h1")
    finally:
        await sender.close()
        await queue.close()
    (hit,) = deliveries(site)
    assert verify(hit.body, hit.headers["x-shoal-signature"], key)
    message = json.loads(hit.body)
    assert (message["event"], message["run"]["name"], message["run"]["done"]) == ("stalled", "r1", 1)
    stalled = message["stalled"]
    assert (stalled["open"], stalled["display_state"], stalled["workers"]) == (4, "waiting", 0)


def test_a_webhook_says_after_how_long_a_run_counts_as_stalled(server: ServerProcess, site: SmallSite) -> None:
    wanted: dict[str, Any] = {"url": site.url("/hook"), "events": ["stalled"]}
    assert server.post("/api/v1/hooks", wanted).json()["stalled_after"] == 600
    made = server.post("/api/v1/hooks", wanted | {"stalled_after": 60}).json()
    assert (made["events"], made["stalled_after"]) == (["stalled"], 60)
    assert server.post("/api/v1/hooks", wanted | {"stalled_after": 1}).status_code == 422
    assert submitted(server, wanted)["hooks"][0]["events"] == ["stalled"]
    plain = server.post("/api/v1/hooks", {"url": site.url("/hook")}).json()
    assert (plain["events"], plain["stalled_after"]) == (["finished", "failed", "cancelled"], None)


def test_secrets_of_webhooks_are_in_no_answer_and_no_log(server: ServerProcess, site: SmallSite) -> None:
    made = submitted(server, {"url": site.url("/hook?token=very-secret")})
    secret = made["hooks"][0]["secret"]
    server.post(f"/api/v1/runs/{made['run']}/cancel")
    wait_until(lambda: deliveries(site))
    for path in ("/api/v1/hooks", "/api/v1/hooks/deliveries", f"/api/v1/runs/{made['run']}", "/api/v1/actions"):
        text = server.get(path).text
        assert secret not in text and "very-secret" not in text, path
    said = "\n".join(server.log_lines)
    assert secret not in said and "very-secret" not in said


def test_keys_and_urls_of_a_run_are_told_to_the_request_that_began_it_and_to_no_other(
    server: ServerProcess, site: SmallSite
) -> None:
    mine = {"urls": ["https://a.example/"], "key": "nightly", "hooks": [{"url": site.url("/hook?token=very-secret")}]}
    first = server.post("/api/v1/runs", mine, headers={"Idempotency-Key": "one"})
    assert first.status_code == 201 and first.json()["hooks"][0]["secret"].startswith("whsec_")
    again = server.post("/api/v1/runs", mine, headers={"Idempotency-Key": "one"})
    assert again.json() == first.json()  # the same request: its answer may have been lost
    begun = server.post("/api/v1/runs", mine | {"key": "other"})
    assert begun.status_code == 201 and begun.json()["hooks"][0]["secret"] != first.json()["hooks"][0]["secret"]
    for theirs in (mine | {"key": "other"}, {"urls": ["https://b.example/"], "key": "other"}):
        answer = server.post("/api/v1/runs", theirs)
        assert (answer.status_code, answer.json()["run"], answer.json()["hooks"]) == (200, begun.json()["run"], [])
        assert "whsec_" not in answer.text and "very-secret" not in answer.text
        assert any("webhooks stay as they are" in note for note in answer.json()["notes"]) == ("hooks" in theirs)


def test_a_shared_secret_signs_for_the_hosts_it_is_bound_to_or_for_what_an_admin_chose(
    tmp_path: Path, site: SmallSite
) -> None:
    bound = f'{{value = "the secret of ops", hosts = ["{site.lane}"]}}'
    elsewhere = '{value = "of others", hosts = ["ops.example"]}'
    (tmp_path / "shoal.toml").write_text(
        f'[secrets]\nhook_ops = {bound}\nhook_all = "for anybody"\nhook_else = {elsewhere}\n'
    )
    queue = sample_queue.state_url(tmp_path)
    with running_server(queue, token="a" * 32, folder=tmp_path, allow_private=site.lane) as server:
        made = server.post("/api/v1/tokens", {"name": "op", "scopes": ["operate"]})
        operator = {"Authorization": f"Bearer {made.json()['token']}"}

        def asked(secret: str, path: str = "/api/v1/runs", **more: Any) -> tuple[int, str]:
            hook = {"url": site.url("/hook"), "secret": secret}
            body = {"urls": ["https://a.example/"], "hooks": [hook]} if path.endswith("runs") else hook
            answer = server.post(path, body, **more)
            return answer.status_code, answer.json().get("detail", "") + answer.json().get("hint", "")

        assert asked("hook_ops", headers=operator)[0] == 201
        for name, why in (("hook_all", "admin"), ("hook_else", "not for 127.0.0.1"), ("hook_no", "has no secret")):
            status, words = asked(name, headers=operator)
            assert (status, why in words) == (422, True), words
            assert "of others" not in words and "for anybody" not in words
        assert asked("hook_all", "/api/v1/hooks") == (201, "")
        assert asked("hook_else", "/api/v1/hooks")[0] == 422  # bound is bound, for admins too
        assert asked("hook_all")[0] == 201  # a run that an admin submits
        names = [run["name"] for run in server.ask("/api/v1/runs")["items"]]
        for name in names:
            server.post(f"/api/v1/runs/{name}/cancel")
        wait_until(lambda: len(deliveries(site)) == 4)
    signed = [
        [key for key in ("the secret of ops", "for anybody") if verify(hit.body, hit.headers["x-shoal-signature"], key)]
        for hit in deliveries(site)
    ]
    assert sorted(signed) == [["for anybody"]] * 3 + [["the secret of ops"]]
