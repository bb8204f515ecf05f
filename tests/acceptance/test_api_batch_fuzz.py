"""Batches and jobs, fuzzed from their description: no 5xx, no status and no answer that it does not name.

Everything is left to a fleet without workers, so that no address that is made up here is ever asked for.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from control_room import ControlRoom, room
from hypothesis import HealthCheck, Phase, given, settings

warnings.filterwarnings("ignore", category=DeprecationWarning)
schemathesis = pytest.importorskip("schemathesis")
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
PATHS = ("/api/crawl/", "/api/scraping/")
EXAMPLES = 25


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlRoom]:
    folder = tmp_path_factory.mktemp("fuzz")
    with room(f"sqlite:///{folder}/queue.db", api_rate="100000") as made:
        made.put(
            "/api/v1/templates/shop", content="name: shop\nstart: https://shop.example/\nfields: {t: h1}\n"
        )
        yield made


def test_whatever_is_sent_is_answered_as_the_description_says(office: ControlRoom) -> None:
    found = office.ask("/openapi.json")
    found.pop("security", None)
    found["components"].pop("securitySchemes", None)
    session = office.post(
        "/api/crawl/batch", {"urls": ["https://shop.example/"], "distributed": True, "timeout": 0.01}
    ).json()["session_id"]
    tried = 0
    for result in schemathesis.openapi.from_dict(found).get_all_operations():
        operation = result.ok()
        if operation.path.startswith(PATHS):
            fuzz(office, operation, session)
            tried += 1
    assert tried == 6


def fuzz(office: ControlRoom, operation: Any, session: str) -> None:
    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    def attempt(case: Any) -> None:
        if isinstance(case.body, dict):
            if operation.path.startswith("/api/crawl"):
                case.body |= {"distributed": True, "timeout": 0.01}
            else:
                case.body["here"] = False
                case.body["template_id"] = "shop"
        for name in case.path_parameters or {}:
            case.path_parameters[name] = session
        response = case.call(base_url=office.url)
        case.validate_response(response, checks=CHECKS)

    attempt()
