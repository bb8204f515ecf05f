"""A private Prometheus for tests: on a free port, with its data in a temporary folder; and promtool."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from wait import HANG, wait_until

from servers.ports import free_port


def program(name: str) -> str:
    """A program of the package; where there is none, tests are skipped on a laptop and fail in CI."""
    if found := shutil.which(name):
        return found
    missing = f"no {name} here: install your system's package prometheus"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def promtool(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("promtool"), *words], input=stdin, capture_output=True, text=True, timeout=HANG, check=False
    )


class Prometheus:
    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, path: str, **words: str) -> Any:
        query = f"?{urllib.parse.urlencode(words)}" if words else ""
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}{query}", timeout=HANG) as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> float:
        """The one value of an expression; NaN where there is none."""
        found = self.ask("query", query=expression)["result"]
        return float(found[0]["value"][1]) if found else float("nan")

    def firing(self) -> set[str]:
        alerts = self.ask("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def healthy(self) -> list[str]:
        """Targets that were scraped without fault."""
        targets = self.ask("targets")["activeTargets"]
        return [target["scrapeUrl"] for target in targets if target["health"] == "up"]


@contextmanager
def prometheus(targets: dict[str, str], rules: str, *, every: str = "1s") -> Iterator[Prometheus]:
    """Scrape these (place by job) and evaluate these rules."""
    with tempfile.TemporaryDirectory(prefix="shoal-prometheus-") as name:
        folder = Path(name)
        (folder / "rules.yml").write_text(rules)
        jobs = [{"job_name": job, "static_configs": [{"targets": [address]}]} for job, address in targets.items()]
        config = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": [str(folder / "rules.yml")],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        address = f"127.0.0.1:{free_port()}"
        command = [
            program("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            "--log.level=error",
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                _wait(process, address)
                yield Prometheus(address)
            finally:
                process.terminate()
                try:
                    process.wait(HANG)
                except subprocess.TimeoutExpired:
                    process.kill()


def _wait(process: subprocess.Popen[bytes], address: str) -> None:
    def answers() -> bool:
        if process.poll() is not None:
            pytest.fail("prometheus did not start")
        with suppress(OSError), urllib.request.urlopen(f"http://{address}/-/ready", timeout=HANG):
            return True
        return False

    wait_until(answers)
