"""A server that has begun to serve goes on, whatever its queue does in that moment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from shoal.errors import QueueUnavailable
from shoal.web import server


class Tokens:
    local_token = None

    def __init__(self, known: list[str] | Exception) -> None:
        self._known = known

    async def tokens(self) -> Any:
        if isinstance(self._known, Exception):
            raise self._known
        return self._known


@pytest.mark.parametrize(
    ("known", "told"),
    [([], []), (["a"], ["Log in with a token.   shoal token list shows which there are"]), (QueueUnavailable("x"), [])],
)
async def test_a_queue_that_goes_away_while_a_server_starts_does_not_end_it(known: Any, told: list[str]) -> None:
    made, said = SimpleNamespace(authenticator=Tokens(known), url="http://127.0.0.1:1"), list[str]()
    assert await server._say_how_to_log_in(cast(Any, made), said.append) == made.url
    assert said == told
