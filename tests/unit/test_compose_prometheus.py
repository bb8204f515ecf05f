"""Prometheus beside a fleet of compose looks for every service that has metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

COMPOSE = Path(__file__).parents[2] / "deploy/compose"


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((COMPOSE / name).read_text())
    return found


def test_every_server_and_worker_is_looked_for() -> None:
    services = read("compose.yaml")["services"]
    roles = {name: it.get("environment", {}).get("SHOAL_ROLE") for name, it in services.items()}
    looked_for = {
        job["job_name"]: {name for place in job["dns_sd_configs"] for name in place["names"]}
        for job in read("prometheus/prometheus.yml")["scrape_configs"]
    }
    assert looked_for["shoal-servers"] == {name for name, role in roles.items() if role == "serve"}
    assert looked_for["shoal-workers"] == {name for name, role in roles.items() if role == "worker"}
    assert "browser-worker" in looked_for["shoal-workers"]
