"""Which settings go with a run to any worker, and which stay a machine's own."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.config.load import SETTINGS, Settings, load, with_defaults
from shoal.config.run_settings import RUN_SETTINGS, settings_for_run, settings_for_template, settings_to_spec
from shoal.core.run import Run
from shoal.errors import UsageError


def own(flags: dict[str, Any] | None = None, **env: str) -> Settings:
    return load(flags or {}, env=env)


def run(**settings: Any) -> Run:
    return Run(1, "r1", "books", "key", "running", 0, 0, spec={"settings": settings})


def test_only_settings_that_were_given_travel_and_only_the_run_s() -> None:
    given = own({"delay": "2", "include": ("/a/*",), "queue": "redis://x", "workers": "3", "max_depth": "none"})
    assert settings_to_spec(given) == {"delay": 2.0, "include": ["/a/*"], "max_depth": None}


@pytest.mark.parametrize(
    "given",
    [
        {"header": ("Authorization: Bearer x",)},
        {"header": ("Accept: a", "X-Api-Key: k")},
        {"header": ("Cookie: a=b",)},
        {"proxy": "http://user:word@proxy:1"},
        {"auth": "user:word"},
    ],
)
def test_secret_never_travels(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="holds a secret"):
        settings_to_spec(own(given))
    assert settings_to_spec(own(given), secret=True) == {}


def test_names_of_secrets_travel() -> None:
    given = {"auth": "shop", "proxy": "out", "header": ("Accept-Language: de",)}
    assert settings_to_spec(own(given)) == given | {"header": ["Accept-Language: de"]}


def test_secret_in_a_scraper_s_code_stays_there() -> None:
    code: dict[str, Any] = {"header": ["Cookie: a=b"], "proxy": "http://proxy:1"}
    assert settings_to_spec(with_defaults(own(), code, "scraper books"), code=code) == {}
    with pytest.raises(UsageError, match="holds a secret"):
        settings_to_spec(with_defaults(own({"header": ("Cookie: c=d",)}), code, "scraper books"), code=code)


def test_url_of_a_proxy_does_not_travel() -> None:
    with pytest.raises(UsageError, match="use their own"):
        settings_to_spec(own({"proxy": "http://10.0.0.1:80"}))
    assert settings_to_spec(own({"proxy": "http://10.0.0.1:80"}), secret=True) == {}


@pytest.mark.parametrize("asked", ["http://10.0.0.1:80", "http://inside.example:80", "unheard-of"])
def test_run_cannot_lead_a_worker_to_a_proxy_of_its_own_choice(asked: str) -> None:
    with pytest.raises(UsageError, match="run r1 asks for a proxy that this machine does not have"):
        settings_for_run(own(), run(proxy=asked))
    with pytest.raises(UsageError, match="template t asks for a proxy"):
        settings_for_template(own(), {"proxy": asked}, "template t")
    mine = own({"proxy": "http://127.0.0.1:3128"})
    assert settings_for_run(mine, run(proxy=asked)).proxy == mine.proxy
    assert settings_for_template(mine, {"proxy": asked}, "template t").proxy == mine.proxy


def test_run_may_name_a_proxy_that_the_machine_has() -> None:
    mine = own(SHOAL_SECRET_OUT="http://127.0.0.1:3128")
    assert settings_for_run(mine, run(proxy="OUT")).proxy == "OUT"


def test_template_of_the_queue_cannot_set_what_is_the_machine_s() -> None:
    evil = {name: "1" for name in SETTINGS if name not in RUN_SETTINGS}
    mine = own({"queue": "mine.db"})
    assert settings_for_template(mine, evil, "template t") == mine
    assert settings_for_template(mine, {"delay": 3, "allow_private": "1"}, "template t").delay == 3.0


@pytest.mark.parametrize(
    ("flags", "env", "spec", "delay"),
    [
        ({}, {}, {"delay": 5}, 5.0),
        ({}, {"SHOAL_DELAY": "7"}, {"delay": 5}, 5.0),
        ({}, {"SHOAL_DELAY": "7"}, {}, 7.0),
        ({}, {"SHOAL_DELAY": "7"}, {"rate": 4}, 0.25),
        ({}, {"SHOAL_RATE": "4"}, {"delay": 5}, 5.0),
        ({"delay": "9"}, {}, {"delay": 5}, 9.0),
        ({"rate": "2"}, {}, {"delay": 5}, 0.5),
        ({"delay": "9"}, {}, {"rate": 4}, 9.0),
    ],
)
def test_worker_s_flag_wins_then_the_run_then_the_rest(
    flags: dict[str, Any], env: dict[str, str], spec: dict[str, Any], delay: float
) -> None:
    assert settings_for_run(own(flags, **env), run(**spec)).delay == delay


def test_run_cannot_set_what_is_the_machine_s() -> None:
    evil = {name: "1" for name in SETTINGS if name not in RUN_SETTINGS}
    mine = own({"queue": "mine.db"})
    assert settings_for_run(mine, run(**evil, unheard_of=3)) == mine


def test_settings_come_out_of_a_spec_as_they_went_in() -> None:
    values: dict[str, Any] = {
        "rate": "30/m", "in_flight": "0", "ignore_robots": True, "max_body": "2MB", "timeout": "1.5s",
        "retries": "none", "header": ("A: b", "C: d"), "http2": False, "scope": "site", "exclude": ("*/x",),
    }  # fmt: skip
    given = own(values)
    back = settings_for_run(own(), run(**settings_to_spec(given)))
    assert {name: getattr(back, name) for name in values} == {name: getattr(given, name) for name in values}
    assert back.delay == 2.0


def test_spec_that_makes_no_sense_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="run r1: max_depth"):
        settings_for_run(own(), run(max_depth="very"))


@pytest.mark.parametrize(
    ("flags", "asked", "given"),
    [
        ({}, 50_000_000, 50_000_000),
        ({}, 2**53, 250_000_000),
        ({"worker_memory": "400MB"}, 2**53, 100_000_000),
        ({"worker_memory": "80MB"}, 30_000_000, 30_000_000),
    ],
)
def test_run_gets_bodies_as_large_as_the_machine_can_bear(flags: dict[str, Any], asked: int, given: int) -> None:
    made = settings_for_run(own(flags), run(max_body=asked, max_download=asked))
    assert (made.max_body, made.max_download) == (given, given)


# What no ceiling is needed for: they make a run longer, not a page.
WITHOUT_CEILING = {"budget", "max_pages", "max_depth", "min_speed", "max_per_shape", "max_same_content"}
LIMITS = [name for name, it in SETTINGS.items() if it.beyond and it.scope == "run" and name not in WITHOUT_CEILING]


@pytest.mark.parametrize("name", LIMITS)
def test_a_run_of_somebody_else_lifts_no_limit_beyond_what_this_machine_allows(name: str) -> None:
    ceiling = SETTINGS[name].ceiling
    assert ceiling is not None
    most = ceiling(own())
    huge = run(**{name: 3 * most})
    assert getattr(settings_for_run(own(), huge), name) == most
    assert getattr(settings_for_run(own({name: str(2 * most)}), huge), name) == 2 * most, "its own flag wins"
    generous = own(**{f"SHOAL_{name.upper()}": str(2 * most)})
    assert getattr(settings_for_run(generous, huge), name) == 2 * most, "a machine that allows more gives more"
    assert getattr(settings_for_run(own(), run(**{name: most - 1})), name) == most - 1
