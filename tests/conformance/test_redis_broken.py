"""The suite sees what goes wrong on Redis: one wrong line in a script, and a test of the contract fails."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from conformance import test_contract_carry as carry
from conformance import test_contract_claim as claim
from conformance import test_contract_drop as drop
from conformance import test_contract_fencing as fencing
from conformance import test_contract_lane_list as lane_list
from conformance import test_contract_lanes as lanes
from conformance import test_contract_look as look
from conformance import test_contract_priority as priority
from conformance import test_contract_reap as reap
from conformance import test_contract_results as results
from conformance import test_contract_rule as rule
from conformance import test_contract_runs as runs
from conformance import test_contract_settle as settle
from conformance import test_contract_stats as stats
from conformance import test_contract_swap as swap
from conformance import test_contract_workers as workers
from conformance import test_redis_looking as looking
from conformance.machine import drive
from conformance.world import World, open_redis
from shoal.errors import Act
from shoal.queue.redis import engine as engine_module

EVERYWHERE = ""
Test = Callable[[World], Awaitable[None]]

# The verb, a line of its script, what stands there instead, and the test that must fail.
PLANTED: dict[str, tuple[str, str, str, Test]] = {
    "the lease number is only the clock": (
        "claim", "local number = max(last_lease + 1, now)", "local number = now",
        claim.test_lease_numbers_grow_when_the_clock_steps_back,
    ),
    "the lease number is only counted": (
        "claim", "local number = max(last_lease + 1, now)", "local number = last_lease + 1",
        claim.test_a_lease_number_is_not_below_the_clock,
    ),
    "a late answer is taken for the first": (
        "settle", "bump(run, 'stale', 1)\n  return 's'", "return 'a'",
        fencing.test_an_answer_is_stale_as_soon_as_its_lease_was_reaped,
    ),
    "the same pair twice in one call counts twice": (
        "settle", "held[one.lease][one.id] = false", "local _ = false",
        fencing.test_the_same_pair_twice_in_one_call_counts_once,
    ),
    "slots are not moved on": (
        "claim", "lane[NEXT] = slot + spacing", "lane[NEXT] = slot",
        lanes.test_slots_of_two_claims_do_not_overlap,
    ),
    "what is reaped keeps its place in flight": (
        "reap", "lane[FLIGHT] = lane[FLIGHT] - 1", "lane[FLIGHT] = lane[FLIGHT]",
        reap.test_reap_gives_back_places_in_flight,
    ),
    "everybody is charged for a lost worker": (
        "reap", "local guilty = not charged or charged[id]", "local guilty = true",
        reap.test_only_executing_tasks_are_charged_for_a_dead_worker,
    ),
    "a task that lost a worker comes with others": (
        "reap", "elseif task.lost > 0 then", "elseif task.lost > 99 then",
        reap.test_a_task_that_lost_a_worker_is_claimed_alone,
    ),
    "anybody can extend a lease": (
        "extend", "lease[WORKER] ~= worker or lease[UNTIL] <= now", "lease[UNTIL] <= now",
        claim.test_nobody_extends_the_lease_of_another,
    ),
    "the oldest is never taken": (
        "claim", "if second and pick % OLDEST_EVERY == 0 then", "if second and pick < 0 then",
        priority.test_the_oldest_is_taken_within_sixteen_picks,
    ),
    "a retry is due at once": (
        "settle", "task.due = now + one.after", "task.due = now",
        settle.test_retry_is_due_after_its_delay_and_costs_an_attempt,
    ),
    "dead letters are not counted": (
        "settle", "bump(run, 'dead', 1)\n    else", "else",
        stats.test_the_account_balances_in_every_state,
    ),
    "a late answer leaves its task cancelled, too": (
        "settle", "bump(run, 'cancelled', late and -1 or 0)", "",
        runs.test_a_late_settle_of_a_cancelled_task_keeps_records_and_drops_links,
    ),
    "trimmed records are forgotten": (
        "trim", "bump(run, 'trimmed', count)", "bump(run, 'records', -count)",
        results.test_trimmed_records_are_gone_but_stay_in_the_account,
    ),
    "a document is replaced whatever its version": (
        "swap", "if version ~= tonumber(ARGV[5]) or", "if",
        swap.test_only_the_newest_version_can_be_replaced,
    ),
    "a document made again begins with one": (
        "swap", "version > 0 and version + 1 or now", "version + 1",
        swap.test_a_document_made_again_has_no_version_of_before,
    ),
    "a person's rule is only one of others": (
        EVERYWHERE, "lane[RULE] >= 0 and lane[RULE] or max(lane[LEARNED], lane[ASKED])",
        "max(lane[RULE], lane[LEARNED], lane[ASKED])",
        rule.test_nothing_learned_or_asked_later_moves_a_rule,
    ),
    "a worker asks for itself": (
        "register", "return call('HGET', P .. 'asked', ARGV[2]) or ''", "return ''",
        workers.test_what_was_asked_outlives_a_restart,
    ),
    "what was dropped is still handed out": (
        "drop", "call('LSET', ready_list(run.id, lane, band), at, CLEARED)", "",
        looking.test_what_is_dropped_from_the_middle_of_a_list_leaves_it,
    ),
    "what was dropped still counts as ready in its lane": (
        "drop", "more_ready(run, lane, band, -1)\n      call_off", "call_off",
        drop.test_one_run_drops_nothing_of_another_in_the_same_lane,
    ),
    "a group still tells of what was revived": (
        "revive", "leave_group(run, task.number, lane, cause)\n", "",
        partial(look.test_groups_tell_only_of_what_is_still_dead, verb="revive"),
    ),
    "a lane with a rule is not listed": (
        "set_lane", "call((lane[RULE] >= 0 or lane[LIMIT] >= 0) and 'SADD' or 'SREM', P .. 'ruled', id)", "",
        lane_list.test_lanes_without_any_run_are_listed_too,
    ),
    "figures stay as they were": (
        "register", "call('HSET', P .. 'figures'", "call('HSETNX', P .. 'figures'",
        workers.test_each_heartbeat_replaces_the_figures,
    ),
    "what was carried in is carried in again": (
        "carry_in", "digest, number) == 1 then", "digest, number) >= 0 then",
        carry.test_carrying_in_a_second_time_does_not_undo_what_happened_since,
    ),
    "carried numbers are given again": (
        "carry_in", "set(run, 'next_task', max(run.next_task, number + 1))", "",
        carry.test_what_was_carried_is_known_and_new_tasks_come_after_it,
    ),
}  # fmt: skip


def plant(monkeypatch: pytest.MonkeyPatch, verb: str, line: str, instead: str) -> None:
    real = engine_module.script

    def script(name: str) -> tuple[str, str]:
        text, digest = real(name)
        if verb not in (name, EVERYWHERE) or (verb == EVERYWHERE and line not in text):
            return text, digest
        assert text.count(line) == 1, f"{verb} has {text.count(line)} × {line!r}"
        text = text.replace(line, instead)
        return text, hashlib.sha1(text.encode()).hexdigest()

    monkeypatch.setattr(engine_module, "script", script)


@pytest.mark.parametrize("bug", PLANTED)
async def test_a_test_of_the_contract_catches(
    bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verb, line, instead, test = PLANTED[bug]
    plant(monkeypatch, verb, line, instead)
    world = World(open_redis, tmp_path)
    world.queue = await world.open()
    try:
        with pytest.raises((AssertionError, Act, LookupError, ValueError)):
            await test(world)
    finally:
        await world.close()


@pytest.mark.faults  # of the suite itself: it takes minutes
def test_the_state_machine_catches_a_place_in_flight_that_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(
        monkeypatch,
        "settle",
        "  if not late then\n    local host",
        "  if not late and one.result ~= 'done' then\n    local host",
    )
    with pytest.raises((AssertionError, Act)):
        drive(lambda: open_redis, examples=100, steps=40, shrink=False)
