"""The suite sees what goes wrong on Redis: one wrong line in a script, and a test of the contract fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from conformance import test_contract_ack as ack
from conformance import test_contract_cache as cache
from conformance import test_contract_claim as claim
from conformance import test_contract_compare_and_swap as compare_and_swap
from conformance import test_contract_discard as discard
from conformance import test_contract_drop as drop
from conformance import test_contract_fencing as fencing
from conformance import test_contract_inspect as inspect
from conformance import test_contract_lane_list as lane_list
from conformance import test_contract_lane_rules as lane_rules
from conformance import test_contract_lanes as lanes
from conformance import test_contract_move as move
from conformance import test_contract_needs as needs
from conformance import test_contract_outbox as outbox
from conformance import test_contract_priority as priority
from conformance import test_contract_push as push
from conformance import test_contract_reap as reap
from conformance import test_contract_repeat as repeat
from conformance import test_contract_results as results
from conformance import test_contract_run_counters as run_counters
from conformance import test_contract_runs as runs
from conformance import test_contract_seen_sets as seen_sets
from conformance import test_contract_settle as settle
from conformance import test_contract_stats as stats
from conformance import test_contract_undo as undo
from conformance import test_contract_workers as workers
from conformance import test_redis_inspect as redis_inspect
from conformance.harness import QueueHarness, open_redis
from conformance.state_machine import drive
from shoal.errors import ActionRequired
from shoal.queue.redis import engine as engine_module
from shoal.queue.redis.script import as_sent, source

EVERYWHERE = ""
Test = Callable[[QueueHarness], Awaitable[None]]

# The verb, a line of its script, what stands there instead, and the test that must fail.
PLANTED: dict[str, tuple[str, str, str, Test]] = {
    "a run's own tasks are seen": (
        "add", "run.seen_set ~= '' and call('HEXISTS', bucket_of(run, digest), digest) == 0", "run.seen_set ~= ''",
        seen_sets.test_a_run_knows_its_own_tasks_however_often_they_are_added,
    ),
    "a seen-set does not grow": (
        "add", "save_seen_set(seen_set)\n  set(run, 'next_task'", "set(run, 'next_task'",
        seen_sets.test_a_large_set_grows_and_is_swept,
    ),
    "what is replaced in the cache still counts": (
        "cache_put", "  cache_remove(key, old)\n", "",
        cache.test_the_account_is_the_sum_of_what_is_there,
    ),
    "links that were seen are not counted": (
        "settle", "    count_seen(run, answers)\n  end", "  end",
        seen_sets.test_found_links_that_are_seen_are_skipped_and_counted,
    ),
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
    "entries are counted by task": (
        "settle", "bump(run, 'outbox', count)", "bump(run, 'outbox', 1)",
        outbox.test_entries_come_with_their_outcome_by_kind_and_in_order,
    ),
    "a full outbox stops nobody": (
        "claim", "run.state == 'running' and run.outbox < MAX_OUTBOX then", "run.state == 'running' then",
        outbox.test_a_run_whose_outbox_is_full_waits_and_goes_on_when_it_is_drained,
    ),
    "entries stay when their run is removed": (
        "purge", "call('ZREM', P .. 'outbox:' .. kinds[i], number)", "local _ = i",
        outbox.test_entries_go_with_their_run_when_it_is_removed,
    ),
    "what a batch counts is added though not all was taken": (
        "settle", "    verdicts[i] = late_verdict(one, run, task)\n    all_taken = false",
        "    verdicts[i] = late_verdict(one, run, task)",
        run_counters.test_answers_that_do_not_count_count_nothing,
    ),
    "every name is kept": (
        "settle", "local narrow = names + #counts / 2 >= MAX_NAMES", "local narrow = false",
        run_counters.test_names_beyond_the_bound_are_summed_under_other,
    ),
    "slots are not moved on": (
        "claim", "lane[NEXT] = slot + spacing", "lane[NEXT] = slot",
        lanes.test_slots_of_two_claims_do_not_overlap,
    ),
    "what is reaped keeps its place in flight": (
        "reap", "get_lane(task.lane)\n      lane[FLIGHT] = lane[FLIGHT] - 1", "get_lane(task.lane)",
        reap.test_reap_gives_back_places_in_flight,
    ),
    "everybody is charged for a lost worker": (
        "reap", "local is_charged = not auto and (not charged or charged[id])", "local is_charged = not auto",
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
        "claim", "if second and (before_others or pick % OLDEST_PICK_EVERY == 0) then", "if second and pick < 0 then",
        priority.test_the_oldest_is_taken_within_sixteen_picks,
    ),
    "a lane with room again is not asked": (
        "settle", "elseif at and before == false then", "elseif false then",
        lanes.test_never_more_in_flight_than_the_lane_allows,
    ),
    "of very many runs the urgent are not looked at": (
        "claim", "if one.fetched > 0 or", "if (one.fetched > 0 and one.priority == 0) or",
        priority.test_of_very_many_runs_the_most_urgent_comes_first_and_all_are_served,
    ),
    "an urgent run is one of others": (
        "claim", "its_urgency > urgency or (its_urgency == urgency and (", "(true and (",
        partial(priority.test_a_more_urgent_run_gets_fifteen_of_sixteen_and_the_oldest_one, limit=16),
    ),
    "an urgent run leaves nothing to others": (
        "claim", "if mixed and is_oldest_turn(seen) then", "if false then",
        partial(priority.test_a_more_urgent_run_gets_fifteen_of_sixteen_and_the_oldest_one, limit=1),
    ),
    "what is not to be tried again is": (
        "settle", "or (one.result == 'retry' and is_auto(task))", "",
        partial(ack.test_a_retry_is_a_dead_letter, after=0.0),
    ),
    "what comes once at most comes again": (
        "reap", "local auto = is_auto(task)", "local auto = false",
        partial(ack.test_a_lease_that_ends_unsettled_leaves_a_dead_letter, how="worker died"),
    ),
    "what was released for later is ready": (
        "settle", "one.result == 'released' and one.after <= 0", "one.result == 'released'",
        settle.test_released_for_later_is_due_then_and_costs_no_attempt,
    ),
    "what was released has lost its place": (
        "settle", "  enqueue_stored(run, task, in_place)\n  call", "  enqueue_stored(run, task, false)\n  call",
        partial(settle.test_released_goes_back_to_its_place, order=(0, 1, 2)),
    ),
    "what was released is due anew": (
        "settle", "if not in_place then", "if true then",
        partial(settle.test_released_goes_back_to_its_place, order=(0, 1, 2)),
    ),
    "what was released comes before what was released earlier": (
        "settle", "if other and other > number then", "if other then",
        partial(settle.test_released_goes_back_to_its_place, order=(0, 1, 2)),
    ),
    "a repeated request hands out what was cancelled": (
        "claim", "if run and tonumber(number) > run.cut then", "if run then",
        repeat.test_a_repeated_request_brings_nothing_that_was_cancelled,
    ),
    "a repeated request hands out what is another's by now": (
        "claim", "if lease and lease[UNTIL] > now then", "if lease then",
        repeat.test_a_request_whose_lease_ran_out_gets_new_work_before_anybody_has_reaped,
    ),
    "a request is forgotten with its first lease": (
        "claim", "lease[REQUEST] = ''", "lease[REQUEST] = lease[REQUEST]",
        repeat.test_a_request_whose_lease_ran_out_gets_new_work_before_anybody_has_reaped,
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
    "what was in progress comes back without its place": (
        "set_run", "lane[FLIGHT] = lane[FLIGHT] + 1", "", undo.test_a_leased_task_is_still_its_workers,
    ),
    "a task whose lease ended while its run was cancelled is gone": (
        "reap", "keeps_tasks(run) and not is_auto(task)", "false",
        undo.test_a_task_whose_lease_ended_meanwhile_waits_and_is_charged_to_nobody,
    ),
    "a cancel is undone for ever": (
        "set_run", "if not keeps_tasks(run) then", "if false then", undo.test_after_an_hour_it_is_too_late,
    ),
    "trimmed records are forgotten": (
        "trim", "bump(run, 'trimmed', count)", "bump(run, 'records', -count)",
        results.test_trimmed_records_are_gone_but_stay_in_the_account,
    ),
    "a document is replaced whatever its version": (
        "compare_and_swap", "if version ~= tonumber(ARGV[5]) or", "if",
        compare_and_swap.test_only_the_newest_version_can_be_replaced,
    ),
    "a document made again begins with one": (
        "compare_and_swap", "version > 0 and version + 1 or now", "version + 1",
        compare_and_swap.test_a_document_made_again_has_no_version_of_before,
    ),
    "a person's rule is only one of others": (
        EVERYWHERE,
        "lane[SPACING_OVERRIDE] >= 0 and lane[SPACING_OVERRIDE] or max(lane[LEARNED], lane[REQUESTED])",
        "max(lane[SPACING_OVERRIDE], lane[LEARNED], lane[REQUESTED])",
        lane_rules.test_nothing_learned_or_asked_later_moves_a_rule,
    ),
    "a worker asks for itself": (
        "register", "return call('HGET', P .. 'commands', ARGV[2]) or ''", "return ''",
        workers.test_what_was_asked_outlives_a_restart,
    ),
    "what was dropped is still handed out": (
        "drop", "call('LSET', ready_list(run.id, lane, band), at, CLEARED)", "",
        redis_inspect.test_what_is_dropped_from_the_middle_of_a_list_leaves_it,
    ),
    "what was dropped still counts as ready in its lane": (
        "drop", "add_ready(run, lane, band, -1)\n      cancel_task", "cancel_task",
        drop.test_one_run_drops_nothing_of_another_in_the_same_lane,
    ),
    "a group still tells of what was revived": (
        "revive", "leave_group(run, task.number, lane, cause)\n", "",
        partial(inspect.test_groups_tell_only_of_what_is_still_dead, verb="revive"),
    ),
    "a lane with a rule is not listed": (
        "set_lane",
        "call((lane[SPACING_OVERRIDE] >= 0 or lane[LIMIT_OVERRIDE] >= 0)"
        " and 'SADD' or 'SREM', P .. 'overridden', id)",
        "",
        lane_list.test_lanes_without_any_run_are_listed_too,
    ),
    "figures stay as they were": (
        "register", "call('HSET', P .. 'counters'", "call('HSETNX', P .. 'counters'",
        workers.test_each_heartbeat_replaces_the_figures,
    ),
    "what was carried in is carried in again": (
        "import_run", "digest, number) == 1 then", "digest, number) >= 0 then",
        move.test_importing_a_second_time_does_not_undo_what_happened_since,
    ),
    "one capability of several will do": (
        "claim", "able = able and has[name]", "able = has[name]",
        needs.test_a_task_goes_only_to_who_has_what_it_needs,
    ),
    "what waits with needs wakes everybody": (
        "add", "return needs == 0 and P .. name .. run or P .. name .. run .. ':' .. needs", "return P .. name .. run",
        needs.test_next_in_does_not_speak_of_what_a_worker_cannot_do,
    ),
    "what is claimed is still needed": (
        "claim", "call('HINCRBY', P .. 'needed:' .. run.id, needs, by)", "local _ = by",
        lambda harness: needs.test_what_comes_back_needs_the_same(harness, 0.0, "released"),
    ),
    "a task that lost a worker is anybody's": (
        "claim", "for _, needs in ipairs(one.left > 0 and one.isolated > 0 and one.reach or {}) do",
        "for _, needs in ipairs(one.left > 0 and one.isolated > 0 and {0, 1} or {}) do",
        needs.test_a_task_that_lost_its_worker_goes_alone_to_who_has_what_it_needs,
    ),
    "what was removed is still told of as dead": (
        "reap", "set_location(run.id, tonumber(number), DISCARDED, 0)", "",
        discard.test_what_was_removed_stays_known,
    ),
    "a run that ended keeps its dead letters": (
        "reap", "elseif run.dead > 0 and discard_some(", "elseif run.dead > 0 and accepts_tasks(run) and discard_some(",
        lambda harness: discard.test_dead_letters_of_an_ended_run_go_too(harness, "finish"),
    ),
    "what is pushed takes no place": (
        "push", "open.free - 1", "open.free",
        push.test_a_push_takes_places_and_finds_none_in_a_full_lane,
    ),
    "a repeated push is not told what it leased": (
        "push", "if id and held[id] then", "if false then",
        push.test_a_repeated_request_returns_the_same_batch,
    ),
    "what is pushed with a TTL is handed out twice": (
        "push", "letter = 'l'\n        else\n          push(", "letter = 'l'\n        end\n        do\n          push(",
        push.test_it_is_settled_like_any_other,
    ),
    "carried numbers are given again": (
        "import_run", "set(run, 'next_task', max(run.next_task, number + 1))", "",
        move.test_new_tasks_come_after_what_was_moved,
    ),
}  # fmt: skip


def plant_bug(monkeypatch: pytest.MonkeyPatch, verb: str, line: str, instead: str) -> None:
    def script(name: str) -> tuple[str, str]:
        text = source(name)
        if verb not in (name, EVERYWHERE) or (verb == EVERYWHERE and line not in text):
            return as_sent(text)
        if text.count(line) != 1:  # no AssertionError: that would be taken for a bug that was caught
            pytest.fail(f"{verb} has {text.count(line)} × {line!r}")
        return as_sent(text.replace(line, instead))

    monkeypatch.setattr(engine_module, "script", script)


@pytest.mark.parametrize("bug", PLANTED)
async def test_a_test_of_the_contract_catches(bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verb, line, instead, test = PLANTED[bug]
    plant_bug(monkeypatch, verb, line, instead)
    harness = QueueHarness(open_redis, tmp_path)
    harness.queue = await harness.open()
    try:
        with pytest.raises((AssertionError, ActionRequired, LookupError, ValueError)):
            await test(harness)
    finally:
        await harness.close()


@pytest.mark.faults  # of the suite itself: it takes minutes
def test_the_state_machine_catches_a_place_in_flight_that_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_bug(
        monkeypatch,
        "settle",
        "  if not late then\n    local host",
        "  if not late and one.result ~= 'done' then\n    local host",
    )
    with pytest.raises((AssertionError, ActionRequired)):
        drive(lambda: open_redis, examples=100, steps=40, shrink=False)
