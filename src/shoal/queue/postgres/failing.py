"""Failing: how often URLs failed for good, over runs; counted by schema/0001/19_failing.sql."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal.core import failing
from shoal.queue.postgres.columns import micros
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.text import escape_nul, unescape_nul
from shoal.queue.values import UrlFailures

SLICE = 1000  # of the oldest, looked at in one step
_FAILURES = """
SELECT f.count, f.causes::text, f.last_at FROM unnest($1::text[]) WITH ORDINALITY u(url, n)
LEFT JOIN {s}.failing f ON f.key = md5(u.url)::uuid ORDER BY u.n"""
_FORGET = """
WITH gone AS (DELETE FROM {s}.failing WHERE $1::text[] IS NULL OR key IN (SELECT md5(url)::uuid FROM unnest($1::text[]) url) RETURNING 1)
SELECT count(*) FROM gone"""
_decode_causes = msgspec.json.Decoder(dict[str, int]).decode


async def failures(engine: Engine, urls: Sequence[str]) -> list[UrlFailures]:
    rows = await engine.rows(_FAILURES, [escape_nul(url) for url in urls])
    return [
        UrlFailures()
        if count is None
        else UrlFailures(count, {unescape_nul(name): n for name, n in _decode_causes(causes).items()}, last_at)
        for count, causes, last_at in rows
    ]


async def forget(engine: Engine, urls: Sequence[str] | None = None) -> int:
    return int(await engine.value(_FORGET, None if urls is None else [escape_nul(url) for url in urls]))


async def forget_old(engine: Engine) -> None:
    await engine.value(
        "SELECT {s}.forget_old_failures($1, $2, $3, $4)",
        engine.now(), micros(failing.KEPT_SECONDS), failing.MAX_REMEMBERED, SLICE,
    )  # fmt: skip
