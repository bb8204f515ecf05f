"""The image, built once; a fleet of compose per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.compose import ComposeFleet
from deploy.docker import build_browser_image, build_image, docker
from deploy.swarm import SwarmFleet


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was counted is said also when all is well: these are the figures of docs/containers.md."""
    for report in terminalreporter.getreports("passed"):
        for _, figures in report.user_properties:
            terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]} ({report.duration:.0f} s): {figures}")


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    yield from build_image("shoal-deploy-test")


@pytest.fixture(scope="session")
def browser_image() -> Iterator[str]:
    yield from build_browser_image("shoal-browser-deploy-test")


@pytest.fixture
def compose_fleet(image: str, tmp_path: Path) -> Iterator[ComposeFleet]:
    fleet = ComposeFleet(image, tmp_path)
    yield fleet
    fleet.remove()


@pytest.fixture
def swarm_fleet(image: str, tmp_path: Path) -> Iterator[SwarmFleet]:
    if docker("info", "--format", "{{.Swarm.LocalNodeState}}").strip() != "inactive":
        pytest.skip("this engine is part of a swarm already, which a test must not change")
    fleet = SwarmFleet(image, tmp_path)
    yield fleet
    fleet.remove()
