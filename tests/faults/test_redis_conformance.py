"""The whole queue contract by way of Sentinels and in a cluster, as on a single Redis."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers.redis_nodes import cluster, sentinel_group
from wait import FOREVER

TESTS = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("servers", [sentinel_group, cluster], ids=["sentinel", "cluster"])
def test_the_contract_holds(servers: Callable[[], Any]) -> None:
    with servers() as made:
        url = made.url("").removesuffix("namespace=").rstrip("?&")
        files = sorted(map(str, (TESTS / "conformance").glob("test_contract_*.py")))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-k", "redis", "-n", "2", *files],
            cwd=TESTS.parent,
            env={**os.environ, "SHOAL_TEST_REDIS": url},
            stdout=subprocess.PIPE,
            text=True,
            timeout=FOREVER,
        )
    print(done.stdout[-3000:])
    assert done.returncode == 0
