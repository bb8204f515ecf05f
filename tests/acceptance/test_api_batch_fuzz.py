"""Batches and jobs, fuzzed from their description: no 5xx, no status and no answer that it does not name.

Everything is left to a fleet without workers, so that no address that is made up here is ever asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fuzzing import fuzz, operations
from server_process import ServerProcess, running_server

PATHS = ("/api/crawl/", "/api/scraping/")
EXAMPLES = 25


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("fuzz")
    with running_server(f"sqlite:///{folder}/queue.db", api_rate="100000") as made:
        made.put("/api/v1/templates/shop", content="name: shop\nstart: https://shop.example/\nfields: {t: h1}\n")
        yield made


def test_whatever_is_sent_is_answered_as_the_description_says(api_server: ServerProcess) -> None:
    session = api_server.post(
        "/api/crawl/batch", {"urls": ["https://shop.example/"], "distributed": True, "timeout": 0.01}
    ).json()["session_id"]

    def attempt(case: Any) -> Any:
        if isinstance(case.body, dict):
            if case.operation.path.startswith("/api/crawl"):
                case.body |= {"distributed": True, "timeout": 0.01}
            else:
                case.body["here"] = False
                case.body["template_id"] = "shop"
        for name in case.path_parameters or {}:
            case.path_parameters[name] = session
        return case.call(base_url=api_server.url)

    tried = 0
    for operation in operations(api_server):
        if operation.path.startswith(PATHS):
            fuzz(operation, EXAMPLES, attempt)
            tried += 1
    assert tried == 7
