"""What Grafana is given: files that are there, where its provisioning looks, for the Prometheus beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

COMPOSE = Path(__file__).parents[2] / "deploy/compose"
PROVISIONING = "/etc/grafana/provisioning"


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    return found


def mounted() -> dict[str, Path]:
    """Files of ours by their place in the container."""
    parts = [volume.split(":") for volume in services()["grafana"]["volumes"] if volume.startswith(".")]
    return {place: (COMPOSE / source).resolve() for source, place, _ in parts}


def provisioned(kind: str) -> dict[str, Any]:
    (file,) = [path for place, path in mounted().items() if place.startswith(f"{PROVISIONING}/{kind}/")]
    content: dict[str, Any] = yaml.safe_load(file.read_text())
    assert content["apiVersion"] == 1
    return content


def test_every_mounted_file_is_there() -> None:
    assert [place for place, path in mounted().items() if not path.is_file()] == []


def test_the_dashboard_is_where_its_provider_looks() -> None:
    (provider,) = provisioned("dashboards")["providers"]
    assert provider["type"] == "file"
    boards = [path for place, path in mounted().items() if place.rpartition("/")[0] == provider["options"]["path"]]
    assert [json.loads(path.read_text())["uid"] for path in boards] == ["shoal-fleet"]


def test_the_data_source_is_of_the_kind_that_the_dashboard_asks_for_and_leads_to_prometheus() -> None:
    (source,) = provisioned("datasources")["datasources"]
    board = json.loads(next(path for path in mounted().values() if path.suffix == ".json").read_text())
    (choice,) = [it for it in board["templating"]["list"] if it["type"] == "datasource"]
    assert (source["type"], source["isDefault"]) == (choice["query"], True)
    host, _, port = source["url"].removeprefix("http://").partition(":")
    assert services()[host]["ports"][0].endswith(f":{port}")
    assert set(services()[host]["networks"]) & set(services()["grafana"]["networks"])
