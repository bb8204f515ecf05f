"""RABBITMQ_HOST, REDIS_HOST and the like: which queue they name, and what goes before them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.config.load import load
from shoal.config.server_variables import queue_from_variables, variables_note
from shoal.errors import UsageError
from shoal.queue.broker.broker_url import BrokerUrl

BROKER = {
    "RABBITMQ_HOST": "broker", "RABBITMQ_PORT": "5673", "RABBITMQ_USER": "me", "RABBITMQ_PASSWORD": "p@:/?",
    "RABBITMQ_VHOST": "jobs",
}  # fmt: skip
STORE = {"REDIS_HOST": "::1", "REDIS_PORT": "6380", "REDIS_PASSWORD": "a&b=c", "REDIS_DB": "2"}


@pytest.mark.parametrize(
    ("env", "url"),
    [
        ({}, ""),
        ({"REDIS_PORT": "6379", "RABBITMQ_USER": "me"}, ""),
        ({"REDIS_HOST": "redis"}, "redis://redis/0"),
        ({"REDIS_HOST": "redis", "REDIS_PORT": "tcp://10.0.0.1:6379"}, "redis://redis/0"),
        (STORE, "redis://:a%26b%3Dc@[::1]:6380/2"),
        ({"RABBITMQ_HOST": "broker"}, "amqp://broker/%2F?ledger=relay"),
    ],
)
def test_the_variables_name_a_queue(env: dict[str, str], url: str) -> None:
    assert queue_from_variables(env)[0] == url


def test_rabbitmq_carries_and_redis_keeps_where_both_are_named() -> None:
    settings = load(env=BROKER | STORE)
    url = BrokerUrl.parse(settings.queue)
    assert (url.address.host, url.address.port, url.address.vhost) == ("broker", 5673, "jobs")
    assert (url.address.user, url.address.password) == ("me", "p@:/?")
    assert url.ledger == "redis://:a%26b%3Dc@[::1]:6380/2"
    note = variables_note(settings)
    assert "RABBITMQ_HOST and REDIS_HOST" in note and "broker" in note
    assert "p%40" not in note and "a%26b" not in note and "a%2526b" not in note


@pytest.mark.parametrize(
    ("more", "login"),
    [
        ({}, ("guest", "guest")),
        ({"RABBITMQ_PASSWORD": "secret"}, ("guest", "secret")),
        ({"RABBITMQ_USER": "me"}, ("me", "guest")),
    ],
)
def test_whoever_gives_half_a_login_for_rabbitmq_has_the_other_half_of_guest(
    more: dict[str, str], login: tuple[str, str]
) -> None:
    address = BrokerUrl.parse(queue_from_variables({"RABBITMQ_HOST": "broker"} | more)[0]).address
    assert (address.user, address.password) == login


def test_whatever_names_a_queue_for_shoal_goes_before_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(env=STORE | {"SHOAL_QUEUE": "redis://other/0"}).queue == "redis://other/0"
    assert load({"queue": "state.db"}, env=STORE).queue == "state.db"
    Path("shoal.toml").write_text('queue = "redis://file/0"')
    settings = load(env=STORE)
    assert settings.queue == "redis://file/0" and variables_note(settings) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"REDIS_HOST": "redis/0@evil"}, {"REDIS_HOST": "r", "REDIS_PORT": "99999"},
        {"REDIS_HOST": "r", "REDIS_DB": "x"},
        {"RABBITMQ_HOST": "b c"}, {"RABBITMQ_HOST": "b", "RABBITMQ_PORT": "-1"},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_without_showing_a_password(wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError) as refused:
        load(env=wrong | {"REDIS_PASSWORD": "hidden"})
    assert "hidden" not in str(refused.value)
