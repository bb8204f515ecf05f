"""What messages of webhooks are signed with: nobody has them signed for a place of theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from shoal.control import webhooks
from shoal.control.signing_key import SharedSecrets, SigningRefused, derived_key
from shoal.control.webhooks import MAX_RUN_HOOKS, SIGNATURE_HEADER, DeliveryResult, Webhook, WebhookDispatcher, verify
from shoal.core.run import NewRun, Run
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue

SHARED = SharedSecrets(
    {"hook_free": "free", "hook_ops": "ops", "shop": "ada:lovelace", "hook_wide": "wide"},
    {"hook_ops": ("ops.example",), "hook_wide": ("*.ops.example", "[::1]:8443")},
)
CHOSEN = "https://chosen.example/told"
OPS, EVIL = "https://ops.example/told", "https://evil.example/told"


class Receiver:
    """Takes every message, and knows what it was signed with."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes, Mapping[str, str]]] = []

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> DeliveryResult:
        self.messages.append((url, body, headers))
        return DeliveryResult(200)

    def signed_with(self, *keys: str) -> list[str]:
        return [
            key for _, body, headers in self.messages for key in keys if verify(body, headers[SIGNATURE_HEADER], key)
        ]


def dispatcher(queue: Queue, receiver: Receiver) -> WebhookDispatcher:
    return WebhookDispatcher(queue, receiver.send, lambda run, stats: {"name": run.name}, SHARED)


async def ended(queue: Queue, name: str, hooks: Any) -> Run:
    await webhooks.start_watching(queue)
    run = await queue.start_run(NewRun("books", f"key of {name}", name=name, spec={"hooks": hooks}))
    await queue.set_run(run.id, "cancel")
    return run


def hook(url: str = EVIL, **more: Any) -> dict[str, Any]:
    return {"id": "h", "url": url} | more


SEAL = SHARED.seal("hook_free", CHOSEN, by_admin=True)
OTHER_SEAL = SharedSecrets({"hook_x": "x"}, {}).seal("hook_x", EVIL, by_admin=True)

# What somebody who can write runs has put there: no message of it is signed with a secret of the server.
HOSTILE_HOOKS: list[dict[str, Any]] = [
    hook(secret="hook_free"),
    hook(secret="HOOK_FREE"),
    hook(secret="hook_free", seal=SEAL),  # of another URL
    hook(secret="hook_free", seal=OTHER_SEAL),  # of another secret
    hook(secret="hook_free", seal=SEAL[:-1]),
    hook(secret="hook_free", seal=SEAL.upper()),
    hook(secret="hook_free", seal="é"),
    hook(secret="hook_free", made_by="admin"),
    hook(secret="hook_free", made_by="this machine", made_at=1),
    hook(CHOSEN + "2", secret="hook_free", seal=SEAL),
    hook(CHOSEN + "/", secret="hook_free", seal=SEAL),
    hook(CHOSEN.replace("https", "http"), secret="hook_free", seal=SEAL),
    hook(CHOSEN.replace("/told", ":8443/told"), secret="hook_free", seal=SEAL),
    hook("https://chosen.example.evil.example/told", secret="hook_free", seal=SEAL),
    hook(secret="hook_ops"),
    hook(secret="hook_ops", seal=SEAL),
    hook("https://ops.example.evil.example/", secret="hook_ops"),
    hook("https://evilops.example/", secret="hook_ops"),
    hook("https://www.ops.example/", secret="hook_ops"),
    hook("https://evil.example/?ops.example", secret="hook_ops"),
    hook("https://evil.example/#@ops.example", secret="hook_ops"),
    hook("https://ops.example@evil.example/", secret="hook_ops"),
    hook("https://ops.example%40evil.example/", secret="hook_ops"),
    hook("https://ops.example%2eevil.example/", secret="hook_ops"),
    hook("https://evil.example\\@ops.example/", secret="hook_ops"),
    hook("https://ops.example:443@evil.example/", secret="hook_ops"),
    hook("https://ops。example.evil.example/", secret="hook_ops"),
    hook("https://ops.example", secret="hook_ops", url2="x"),
    hook("https:ops.example/", secret="hook_ops"),
    hook("//ops.example/", secret="hook_ops"),
    hook("file:///etc/passwd", secret="hook_ops"),
    hook("gopher://ops.example/", secret="hook_ops"),
    hook("unix:///run/docker.sock", secret="hook_ops"),
    hook("https://ops.example:8443x/", secret="hook_ops"),
    hook("https://ops.example/\r\nX: y", secret="hook_ops"),
    hook("https://ops.example /", secret="hook_ops"),
    hook("", secret="hook_ops"),
    hook("https://ops.example/", secret="hook_wide"),
    hook("https://evilops.example/", secret="hook_wide"),
    hook("http://[::1]:80/", secret="hook_wide"),
    hook("http://[::1]/", secret="hook_wide"),
    hook(secret="shop"),
    hook(secret="SHOP", seal=SEAL),
    hook(secret="hook"),
    hook(secret="hook_no"),
    hook(secret="hook_free\0"),
    hook(secret=" hook_free"),
    hook(secret="ｈook_free"),
    hook(secret=["hook_free"]),
    hook(secret={"name": "hook_free"}),
    hook(id=5, secret="hook_free"),
    hook(events=["anything"], secret="hook_free"),
]  # fmt: skip


@pytest.mark.parametrize("given", HOSTILE_HOOKS, ids=lambda given: str(given)[:60])
async def test_no_message_to_a_stranger_is_signed_with_a_secret_of_the_server(
    queue: Queue, given: dict[str, Any]
) -> None:
    receiver = Receiver()
    await ended(queue, "theirs", [given])
    for _ in range(2):
        await dispatcher(queue, receiver).run_once()
    # Whatever is sent to the bound host itself may be signed with its secret.
    elsewhere = [message for message in receiver.messages if message[0].partition("://")[2] != "ops.example/"]
    receiver.messages = elsewhere
    assert receiver.signed_with("free", "ops", "wide", "ada:lovelace") == []


@pytest.mark.parametrize("given", HOSTILE_HOOKS[:20], ids=lambda given: str(given)[:60])
async def test_a_document_that_was_written_past_the_server_is_no_admin_s(queue: Queue, given: dict[str, Any]) -> None:
    """Whoever writes to the database can make webhooks of the fleet, and not have them signed with its secrets."""
    receiver = Receiver()
    await webhooks.start_watching(queue)
    await queue.compare_and_swap(kinds.WEBHOOK, "h", json.dumps(given), 0)
    delivery = {"id": "d", "hook": given, "event": "finished", "run": "r", "body": "{}", "made_at": 1}
    await queue.compare_and_swap(kinds.WEBHOOK_DELIVERY, "d", json.dumps(delivery), 0)
    await ended(queue, "any", [])
    for _ in range(2):
        await dispatcher(queue, receiver).run_once()
    assert receiver.signed_with("free", "ops", "wide", "ada:lovelace") == []
    kept = await webhooks.recent_deliveries(queue)
    assert len(kept) == 2 and all(it.state != "delivered" and "secret" in it.error for it in kept)


async def test_a_run_that_names_the_id_of_another_hook_does_not_get_its_key(queue: Queue) -> None:
    """As a `work` token can: it writes runs as it likes, and reads the ids of hooks."""
    receiver = Receiver()
    await webhooks.add(queue, Webhook("0123456789abcdef", "https://fleet.example/", ("finished",)))
    mine = await ended(queue, "mine", [hook("https://mine.example/")])
    own_id = webhooks.webhooks_of(mine)[0].id
    stolen = [hook(id="0123456789abcdef"), hook(id=own_id), hook(id=webhooks.run_hook_id(mine, 0))]
    theirs = await ended(queue, "theirs", stolen)
    await dispatcher(queue, receiver).run_once()
    keys = {id: await derived_key(queue, id) for id in ("0123456789abcdef", own_id)}
    to_them = [message for message in receiver.messages if message[0] == EVIL]
    to_me = [message for message in receiver.messages if message[0] == "https://mine.example/"]
    assert (len(to_them), len(to_me)) == (3, 1)
    assert verify(to_me[0][1], to_me[0][2][SIGNATURE_HEADER], keys[own_id])
    for _, body, headers in to_them:
        assert not any(verify(body, headers[SIGNATURE_HEADER], key) for key in keys.values())
    ids = [one.id for run in (mine, theirs) for one in webhooks.webhooks_of(run)]
    assert len(set(ids)) == 4 and all(len(id) > 16 for id in ids)


async def test_a_run_of_the_same_key_or_name_has_keys_of_its_own(queue: Queue) -> None:
    first = await ended(queue, "same", [hook()])
    await queue.purge(run=first.id)
    second = await ended(queue, "same", [hook()])
    assert webhooks.webhooks_of(first)[0].id != webhooks.webhooks_of(second)[0].id


async def test_a_run_brings_at_most_so_many_hooks(queue: Queue) -> None:
    run = await ended(queue, "many", [hook(f"https://evil.example/{n}") for n in range(5_000)])
    assert len(webhooks.webhooks_of(run)) == MAX_RUN_HOOKS


def test_an_admin_chooses_for_what_is_not_bound_and_for_nothing_else() -> None:
    assert SHARED.key("hook_free", CHOSEN, SEAL) == "free"
    assert SHARED.seal("Hook_Ops", OPS, by_admin=False) == "" and SHARED.key("hook_ops", OPS, "") == "ops"
    assert SHARED.key("hook_wide", "https://a.ops.example/", "") == "wide"
    assert SHARED.key("hook_wide", "https://[::1]:8443/", "") == "wide"
    for name, url, by_admin, hint in (
        ("hook_free", EVIL, False, 'hosts = ["evil.example"]'),
        ("hook_ops", EVIL, True, 'hosts = ["evil.example"]'),
        ("shop", OPS, True, "named hook"),
        ("hook_no", OPS, True, "[secrets]"),
    ):
        with pytest.raises(SigningRefused) as caught:
            SHARED.seal(name, url, by_admin=by_admin)
        assert hint in caught.value.hint
