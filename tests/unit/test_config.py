"""Settings: one declaration, five layers, errors that name where a value came from."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shoal.config.load import SETTINGS, Settings, load, with_defaults
from shoal.errors import UsageError


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "shoal.toml") -> None:
    Path(name).write_text(text)


def refused(match: str, **layers: object) -> UsageError:
    with pytest.raises(UsageError, match=match) as caught:
        load(layers.get("flags"), env=layers.get("env", {}), file=layers.get("file"))  # type: ignore[arg-type]
    return caught.value


def test_nothing_given_means_the_defaults() -> None:
    settings = load(env={})
    assert settings == Settings()
    assert (settings.delay, settings.in_flight, settings.concurrency) == (1.0, 2, 16)


@pytest.mark.parametrize("name", list(SETTINGS))
def test_every_setting_is_a_flag_a_variable_and_a_key_of_the_file(name: str) -> None:
    values = {"queue": "x.db", "user_agent": "me/1", "log_file": "x.log", "allow_private": "1", "header": "X-A: 1"}
    words = {"synchronous": "normal", "log_format": "json", "log_level": "debug"}
    words |= {"scope": "site", "otel": "http://collector:4318", "dead_retention": "24h", "routes": "* ttl=1h"}
    words |= {"engine": "celery", "scaler": "swarm", "scale_policy": "per_pending"}
    words |= {"trusted_proxies": "10.0.0.0/24, ::1", "memory_high": "80%", "cpu_high": "0.5"}
    words |= {"fetch": "browser", "steps": "wait .item", "browser_load": "images, fonts"}
    words |= {"on_block": "park"}
    words |= {"exit": "de", "exit_pace": "host", "exits_file": "/dev/null"}
    words |= {"budget": "proxy=2GB"}
    words |= {"session_key": "k" * 16}
    words |= {"run_id_format": "{date}_{time}", "worker_id_format": "{host}_{pid}"}
    default = SETTINGS[name].default
    text = str(not default).lower() if SETTINGS[name].is_boolean else (values | words).get(name, "21")
    lease = {"lease": "90"} if name == "heartbeat" else {}
    by_flag = load({name: text, **lease}, env={})
    by_variable = load(lease, env={SETTINGS[name].variable: text})
    write(f'{name} = "{text}"')
    by_file = load(lease, env={})
    assert getattr(by_flag, name) == getattr(by_variable, name) == getattr(by_file, name)
    assert getattr(by_flag, name) != SETTINGS[name].default
    assert by_flag.sources[name] == "--" + name.replace("_", "-")
    assert by_variable.sources[name] == f"SHOAL_{name.upper()}"
    assert by_file.sources[name] == f"shoal.toml: {name}"


@pytest.mark.parametrize("text", ["nginx", "10.0.0.1/8", "*", "10.0.0.300", "127.0.0.1:8080", "unix:"])
def test_a_trusted_proxy_is_an_address_or_a_network(text: str) -> None:
    assert "addresses or networks" in refused("trusted-proxies", flags={"trusted_proxies": text}).hint


def test_flag_wins_over_environment_over_file_over_scraper() -> None:
    write("timeout = 1\nmax_pages = 1\nconcurrency = 1")
    settings = load({"timeout": "3"}, env={"SHOAL_TIMEOUT": "2", "SHOAL_MAX_PAGES": "2"})
    settings = with_defaults(settings, {"timeout": 4, "max_pages": 4, "concurrency": 4, "workers": 4}, "books")
    assert (settings.timeout, settings.max_pages, settings.concurrency, settings.workers) == (3, 2, 1, 4)
    assert settings.sources["workers"] == "books: workers"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("delay", "500ms", 0.5),
        ("delay", "0", 0.0),
        ("delay", "1.5s", 1.5),
        ("timeout", "2m", 120.0),
        ("timeout", "1h", 3600.0),
        ("rate", "30/m", 0.5),
        ("rate", "4", 4.0),
        ("worker_rate", "30/m", 0.5),
        ("worker_rate", "0", 0.0),
        ("celery_allow", "shop.*, a.b", ("shop.*", "a.b")),
        ("max_body", "32MB", 32_000_000),
        ("max_body", "1GiB", 2**30),
        ("max_body", "1024", 1024),
        ("max_pages", "10_000", 10_000),
        ("max_depth", "0", 0),
        ("max_depth", "none", None),
        ("ignore_robots", "no", False),
        ("ignore_robots", "ON", True),
        ("allow_private", "1", "1"),
        ("allow_private", "0", ""),
        ("allow_private", "127.0.0.1:8000, LOCALHOST", "127.0.0.1:8000,localhost"),
        ("allow_private", "[::1]:80", "[::1]:80"),
        ("allow_private", "10.0.0.0/8, fd00::/8", "10.0.0.0/8,fd00::/8"),
        ("allow_private", ["10.0.0.0/8"], "10.0.0.0/8"),
    ],
)
def test_what_is_understood(name: str, text: str, value: object) -> None:
    assert getattr(load({name: text}, env={}), name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("delay", "soon"),
        ("delay", "-1"),
        ("delay", "nan"),
        ("timeout", "0"),
        ("rate", "0"),
        ("worker_rate", "-1"),
        ("celery_task", "rm -rf /"),
        ("celery_allow", "a;b"),
        ("rate", "2/ms"),
        ("rate", "2/week"),
        ("max_body", "32XB"),
        ("max_body", "0"),
        ("max_pages", "1.5"),
        ("concurrency", "0"),
        ("ignore_robots", "perhaps"),
        ("allow_private", "http://localhost/"),
        ("allow_private", "10.0.0.1/8"),
        ("allow_private", "10.0.0.0/33"),
        ("synchronous", "off"),
        ("log_level", "loud"),
        ("user_agent", "a\nb"),
    ],
)
def test_what_is_not_understood_names_source_value_and_what_is_accepted(name: str, text: str) -> None:
    setting = SETTINGS[name]
    for source, layers in {
        setting.flag: {"flags": {name: text}},
        setting.variable: {"env": {setting.variable: text}},
    }.items():
        error = refused(f"{source}: ", **layers)
        assert repr(text) in str(error)
        assert setting.accepts in error.hint


def test_delay_and_rate_together_are_refused_on_one_level_and_override_across_levels() -> None:
    error = refused("--delay and --rate", flags={"delay": "1", "rate": "2"})
    assert "keep one" in error.hint
    write("rate = 2")
    assert load({"delay": "3"}, env={}).delay == 3.0
    assert load({"delay": "3"}, env={}).rate == 0.0
    assert load(env={}).delay == 0.5
    assert with_defaults(load(env={}), {"delay": 9}, "books").delay == 0.5


def test_a_misspelled_name_is_told_with_the_nearest_one() -> None:
    write("concurency = 3")
    assert refused("shoal.toml: concurency").hint == "did you mean concurrency?"
    write("")
    assert refused("SHOAL_RAET", env={"SHOAL_RAET": "1"}).hint == "did you mean SHOAL_RATE?"
    with pytest.raises(UsageError, match="books: max_page: "):
        with_defaults(load(env={}), {"max_page": 3}, "books")


def test_variables_of_the_platform_and_empty_ones_are_let_be() -> None:
    env = {"SHOAL_API_SERVICE_HOST": "10.0.0.1", "SHOAL_RATE": "", "SHOAL_CONFIG": "", "PATH": "/bin"}
    assert load(env=env) == Settings()


def test_a_named_settings_file_must_exist_and_be_readable() -> None:
    refused("there is no settings file other.toml", file="other.toml")
    refused("there is no settings file gone.toml", env={"SHOAL_CONFIG": "gone.toml"})
    write("rate = 4", "other.toml")
    assert load(env={}, file="other.toml").rate == 4.0
    write("rate = = 4", "other.toml")
    refused("other.toml is not valid TOML", file="other.toml")


def test_settings_may_be_written_as_yaml() -> None:
    write("rate: 2\n", "shoal.yaml")
    assert load(env={}, file="shoal.yaml").rate == 2.0


def test_secrets_come_from_the_file_and_the_environment_and_are_never_shown() -> None:
    write('rate = 2\n[secrets]\nshop = "me:pw"\nold = "a"\n')
    settings = load(env={"SHOAL_SECRET_OLD": "b"})
    assert settings.secrets == {"shop": "me:pw", "old": "b"}
    assert "me:pw" not in repr(settings)


def test_secrets_may_be_bound_to_hosts() -> None:
    write(
        '[secrets]\nshop = {value = "me:pw", hosts = ["Shop.example", "*.shop.example:81"]}\n'
        'key = {hosts = ["api.example"]}\nfree = "x"\n'
    )
    settings = load(env={"SHOAL_SECRET_KEY": "t0ken"})
    assert settings.secrets == {"shop": "me:pw", "key": "t0ken", "free": "x"}
    assert settings.secret_hosts == {"shop": ("shop.example", "*.shop.example:81"), "key": ("api.example",)}


@pytest.mark.parametrize(
    "line",
    [
        '{value = "x"}', '{value = "x", hosts = []}', '{value = "x", hosts = "shop.example"}',
        '{value = "x", hosts = ["*"]}', '{value = "x", hosts = ["https://shop.example/"]}',
        '{value = "x", hosts = ["a"], host = "b"}', '{value = 1, hosts = ["a"]}', "1",
    ],
)  # fmt: skip
def test_a_secret_that_is_not_understood_is_refused_without_being_shown(line: str) -> None:
    write(f"[secrets]\nshop = {line}\n")
    error = refused("secrets: shop")
    assert "hosts" in error.hint or "user:password" in error.hint


@pytest.mark.parametrize(
    ("text", "place"),
    [("8080", "127.0.0.1:8080"), ("0.0.0.0:1", "0.0.0.0:1"), ("[::1]:80", "[::1]:80"), ("localhost:0", "localhost:0")],
)
def test_a_place_to_listen_is_a_port_or_an_address_with_one(text: str, place: str) -> None:
    assert load({"listen": text}, env={}).listen == place
    assert load({"dashboard": text}, env={}).dashboard == place


@pytest.mark.parametrize("text", ["", "x", ":80", "1.2.3.4", "h:65536", "http://h:80", "-1"])
def test_other_words_are_no_place(text: str) -> None:
    refused("--listen", flags={"listen": text})


def test_a_dashboard_is_off_on_or_somewhere() -> None:
    wanted = {"0": "", "off": "", "1": "127.0.0.1:8080", "true": "127.0.0.1:8080", "9000": "127.0.0.1:9000"}
    assert {text: load({"dashboard": text}, env={}).dashboard for text in wanted} == wanted


def test_a_token_is_never_shown() -> None:
    assert "hush-hush" not in repr(load(env={"SHOAL_TOKEN": "hush-hush"}))


def test_what_can_be_given_several_times_is_a_list_in_the_file_and_lines_in_a_variable() -> None:
    write('exclude = ["/a/*", "/b/*"]\n')
    assert load(env={}).exclude == ("/a/*", "/b/*")
    assert load(env={"SHOAL_EXCLUDE": "/a/*\n/b/*"}).exclude == ("/a/*", "/b/*")
    assert load({"exclude": ("/c/*",)}, env={}).exclude == ("/c/*",)


def test_a_heartbeat_too_slow_for_its_lease_is_refused() -> None:
    refused("heartbeat", flags={"heartbeat": "20", "lease": "30"})


@pytest.mark.parametrize(
    ("queue", "file"),
    [
        ("", ".shoal/shoal.db"),
        ("state.db", "state.db"),
        ("sqlite:///state.db", "state.db"),
        ("sqlite:////var/state.db?namespace=x", "/var/state.db"),
        ("postgresql://db/shoal", None),
    ],
)
def test_where_the_state_file_is(queue: str, file: str | None) -> None:
    found = load({"queue": queue} if queue else {}, env={}).state_file
    assert found == (Path(file) if file else None)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("redis://h/0", "redis://h/1", False),
        ("redis://h/0?namespace=a", "redis://h/0?namespace=b", False),
        ("postgresql://h/x", "redis://h/x", False),
        ("redis://h/0", "", False),
        ("postgresql://me:old@h/x", "postgresql://me:new@h/x", True),
    ],
)
def test_what_is_kept_beside_queues_does_not_mix(one: str, other: str, same: bool) -> None:
    """Kept pages of a run that one queue does not know are removed with its old runs."""
    folders = [load({"queue": queue} if queue else {}, env={}).state_folder for queue in (one, other)]
    assert (folders[0] == folders[1]) is same
    assert all(folder.parts[0] == ".shoal" for folder in folders)


def test_settings_travel_to_another_process_as_json() -> None:
    settings = load({"rate": "2", "max_depth": "3", "allow_private": "1"}, env={})
    assert msgspec.json.decode(msgspec.json.encode(settings), type=Settings) == settings
