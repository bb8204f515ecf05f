"""What fuzz tests of the API's description share."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from server_process import ServerProcess

warnings.filterwarnings("ignore", category=DeprecationWarning)
schemathesis = pytest.importorskip("schemathesis")
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def operations(server: ServerProcess) -> list[Any]:
    """As described, but for tokens: the right one is always sent, and made-up ones are another test's."""
    found: dict[str, Any] = server.ask("/openapi.json")
    found.pop("security", None)
    found["components"].pop("securitySchemes", None)
    return [it.ok() for it in schemathesis.openapi.from_dict(found).get_all_operations()]


def fuzz(operation: Any, examples: int, attempt: Callable[[Any], Any]) -> None:
    """Make up cases of an operation; what an attempt is answered must be as the description says."""

    @given(case=operation.as_strategy())
    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    def one(case: Any) -> None:
        case.validate_response(attempt(case), checks=CHECKS)

    one()
