"""Record keys: of records with a key, those that another task of their run has brought are left out of a settle."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import msgspec

from shoal.core.run import run_of
from shoal.core.task import SHORT_DIGEST, Outcome

Claimant = tuple[int, int, bytes]  # task, lease, digest

_LOCK = "SELECT lock_runs($1)"
# In the order of the keys: two that bring the same ones do not wait for each other in a circle.
_CLAIM = """INSERT INTO seen (run, digest, task)
    SELECT DISTINCT ON (l.run, o.digest) l.run, o.digest, -l.id
    FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) WITH ORDINALITY o(task, lease, digest, ord)
    JOIN leased l ON l.id = o.task AND l.lease + 0 = o.lease
    ORDER BY l.run, o.digest, o.ord ON CONFLICT DO NOTHING"""
_OWNERS = """SELECT abs(s.task) = o.task FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY o(task, digest, ord)
    LEFT JOIN seen s ON s.run = (o.task >> 32)::integer AND s.digest = o.digest ORDER BY o.ord"""


def has_keys(outcome: Outcome) -> bool:
    return outcome.result == "done" and any(outcome.record_keys)


async def without_known_records(db: asyncpg.Connection, schema: str, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes without records that are another task's; within the transaction that settles them.

    What a redirect led to is judged first: where all of a page is dropped, it must not take the keys with it.
    """
    keyed = [outcome for outcome in outcomes if has_keys(outcome)]
    await db.execute(f"SET LOCAL search_path TO {schema}")
    await db.fetchval(_LOCK, sorted({run_of(outcome.task) for outcome in keyed}))
    redirected = [outcome for outcome in keyed if outcome.redirect_digest]
    kept = await _claim(db, [(it.task, it.lease, it.redirect_digest or b"") for it in redirected])
    dropped = {(it.task, it.lease) for it, own in zip(redirected, kept, strict=True) if not own}
    keyed = [outcome for outcome in keyed if (outcome.task, outcome.lease) not in dropped]
    claims = [(it.task, it.lease, key) for it in keyed for key in it.record_keys if key]
    owned = dict(zip(claims, await _claim(db, claims), strict=True))
    return [
        outcome if (outcome.task, outcome.lease) in dropped else _without_known(outcome, owned) for outcome in outcomes
    ]


def _without_known(outcome: Outcome, owned: dict[Claimant, bool]) -> Outcome:
    if not has_keys(outcome):
        return outcome
    pairs = zip(outcome.records, outcome.record_keys, strict=True)
    records = tuple(data for data, key in pairs if not key or owned[outcome.task, outcome.lease, key])
    return msgspec.structs.replace(outcome, records=records, record_keys=())


async def _claim(db: asyncpg.Connection, claims: Sequence[Claimant]) -> list[bool]:
    """Which digests are their task's from now on, or were already."""
    if not claims:
        return []
    tasks, leases = [task for task, _, _ in claims], [lease for _, lease, _ in claims]
    digests = [digest[:SHORT_DIGEST] for _, _, digest in claims]
    await db.execute(_CLAIM, tasks, leases, digests)
    return [bool(row[0]) for row in await db.fetch(_OWNERS, tasks, digests)]
