"""Planted mistakes in what follows a fail-over."""

from __future__ import annotations

from mutants.mutant import Mutant

_CLUSTER = "conformance/test_redis_cluster.py"
_HOSTS = "conformance/test_postgres_hosts.py"
_WRITES = "unit/test_recent_writes.py"

MUTANTS = (
    Mutant(
        "a script runs while a cluster moves the keys it needs",
        "queue/redis/engine.py",
        'names = ("meta", "absent") if',
        'names = ("meta",) if',
        f"{_CLUSTER}::test_a_slot_that_moves_stops_the_queue_for_a_moment_and_nothing_is_half_done",
    ),
    Mutant(
        "a change is acknowledged before replicas have it",
        "queue/redis/engine.py",
        "replicas = 0 if verb in _READS else self.server_url.replicas",
        "replicas = 0",
        f"{_CLUSTER}::test_a_change_that_no_replica_has_is_not_acknowledged",
    ),
    Mutant(
        "the password of servers is sent to sentinels",
        "queue/redis/sentinel.py",
        "if words := to.sentinel_login.words:",
        "if words := to.login.words:",
        f"{_CLUSTER}::test_sentinels_are_asked_in_turn_and_the_ones_that_are_silent_or_gone_are_passed_over",
    ),
    Mutant(
        "what a replica lacks is not repeated",
        "queue/redis/engine.py",
        "self.recovery.begin(before, server_id)",
        "pass",
        "conformance/test_failover.py::"
        "test_what_an_asynchronous_replica_lacks_is_repeated_counted_and_found_by_doctor[sentinel]",
    ),
    Mutant(
        "a PostgreSQL that is not the primary any more is asked again and again",
        "queue/postgres/engine.py",
        "await self._pool.expire_connections()",
        "pass",
        f"{_HOSTS}::test_a_server_that_is_not_the_primary_any_more_is_left",
    ),
    Mutant(
        "a host that is silent is asked first each time",
        "queue/postgres/hosts.py",
        "self._dsns.insert(0, dsn)",
        "self._dsns.append(dsn)",
        f"{_HOSTS}::test_hosts_that_are_gone_or_silent_are_passed_over_and_not_asked_first_again",
    ),
    Mutant(
        "links that a part skipped count again after a fail-over",
        "queue/recent_writes.py",
        'if outcome.result == "part" else outcome',
        'if outcome.result == "done" else outcome',
        f"{_WRITES}::test_a_part_is_repeated_without_what_would_count_again",
    ),
    Mutant(
        "what is remembered grows without end",
        "queue/recent_writes.py",
        "self._size > MAX_BYTES or",
        "",
        f"{_WRITES}::test_it_is_bounded_by_time_and_by_size",
    ),
    Mutant(
        "an outcome that was refused is repeated",
        "queue/recent_writes.py",
        'if verdict != "stale" and outcome.result in _ENDS',
        "if outcome.result in _ENDS",
        f"{_WRITES}::test_only_what_was_accepted_and_does_not_come_back_by_itself_is_kept",
    ),
)
