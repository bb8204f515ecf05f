"""Every rule of the suite has been seen to fail: each broken queue is caught."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from conformance import (
    broken,
    broken_cache,
    broken_discard,
    broken_failing,
    broken_page_limit,
    broken_page_states,
    broken_push,
    broken_sqlite,
)
from conformance import test_contract_ack as ack
from conformance import test_contract_add as add
from conformance import test_contract_aside as aside
from conformance import test_contract_cache as cache
from conformance import test_contract_claim as claim
from conformance import test_contract_compare_and_swap as compare_and_swap
from conformance import test_contract_discard as discard
from conformance import test_contract_drop as drop
from conformance import test_contract_exits as exits
from conformance import test_contract_failing as failing
from conformance import test_contract_fencing as fencing
from conformance import test_contract_idle_lanes as idle_lanes
from conformance import test_contract_inspect as inspect
from conformance import test_contract_lane_list as lane_list
from conformance import test_contract_lane_rules as lane_rules
from conformance import test_contract_lanes as lanes
from conformance import test_contract_move as move
from conformance import test_contract_needs as needs
from conformance import test_contract_outbox as outbox
from conformance import test_contract_page_limit as page_limit
from conformance import test_contract_page_states as page_states
from conformance import test_contract_priority as priority
from conformance import test_contract_push as push
from conformance import test_contract_reap as reap
from conformance import test_contract_record_keys as record_keys
from conformance import test_contract_results as results
from conformance import test_contract_run_counters as run_counters
from conformance import test_contract_runs as runs
from conformance import test_contract_seen_sets as seen_sets
from conformance import test_contract_settle as settle
from conformance import test_contract_share as share
from conformance import test_contract_stats as stats
from conformance import test_contract_undo as undo
from conformance import test_contract_workers as workers
from conformance.harness import QueueHarness, model_opener
from conformance.model import ModelQueue
from conformance.state_machine import drive
from shoal.core.task import LaneChange
from shoal.errors import ActionRequired

# These need something rare or dishonest to happen, so a test of their own catches them (sooner).
BY_A_TEST: dict[type[ModelQueue], Callable[[QueueHarness], Awaitable[None]]] = {
    broken_failing.FailuresOfOneRun: failing.test_failures_outlive_their_run,
    broken_failing.ExpiryIsNoFailure: failing.test_a_ttl_that_ran_out_and_a_worker_that_was_lost_are_failures,
    broken_failing.FailuresForEver: failing.test_a_success_forgets_the_failures_of_its_url_only,
    broken_failing.FailuresUnbounded: failing.test_failures_are_forgotten_a_while_after_the_last,
    broken_failing.RevivedStillFailing: failing.test_reviving_a_dead_letter_forgets_the_failures_of_its_url,
    broken_failing.MovedIsFailed: failing.test_a_dead_letter_that_is_moved_here_is_no_new_failure,
    broken.FencedByLeaseOnly: fencing.test_a_lease_covers_only_its_own_tasks,
    broken.ReserveTakesNoSlot: lanes.test_reserve_and_claim_share_the_slots_of_a_lane,
    broken.ExtendDoesNothing: claim.test_an_extended_lease_lives_on,
    broken.ExpiredHandedOut: reap.test_a_task_whose_time_is_over_is_not_handed_out,
    broken.RecordKeysIgnored: record_keys.test_of_two_records_with_one_key_the_first_is_kept,
    broken.RecordKeysTakenByDroppedPage: record_keys.test_a_page_that_is_dropped_leaves_the_keys_to_the_other,
    broken.SilentExpiry: reap.test_a_delayed_task_expires_too,
    broken.ReviveDoubles: runs.test_revived_dead_letters_are_ready_with_fresh_attempts,
    broken.NothingOldest: priority.test_the_oldest_is_taken_within_sixteen_picks,
    broken.UnfairShare: share.test_runs_with_lanes_of_their_own_share_a_worker_by_weight,
    broken.MaxPagesIgnored: share.test_never_more_than_max_pages_are_handed_out,
    broken.HalfABatch: settle.test_a_batch_that_cannot_be_stored_leaves_nothing_behind,
    broken.SeqGivenAgain: lambda harness: results.test_no_seq_is_given_twice(harness, beyond=0),
    broken.VersionsComeAgain: compare_and_swap.test_a_document_made_again_has_no_version_of_before,
    broken.LanesStay: idle_lanes.test_the_lane_of_a_removed_run_goes_a_day_after_its_last_slot,
    broken.LanesForgotten: lambda harness: idle_lanes.test_what_is_known_about_a_host_is_not_lost(
        harness, LaneChange("a.test", spacing=7.0)
    ),
    broken.LanesOutOfHistory: idle_lanes.test_a_lane_that_history_names_stays,
    broken.SilentWorkersStay: workers.test_workers_that_are_silent_leave_when_the_old_is_removed,
    broken.NumbersInAnyOrder: add.test_new_tasks_are_numbered_in_the_order_given,
    broken.IdsInAnyOrder: results.test_ids_come_in_the_order_they_were_asked_for,
    broken.RecordsOfAll: results.test_records_of_chosen_tasks_come_in_the_order_of_settling,
    broken.CarriesOpenOnly: move.test_everything_the_run_has_seen_is_exported_by_number,
    broken.CarriedTwice: lambda harness: move.test_the_account_is_moved_along_and_adds_up(harness, times=2),
    broken.CarriedWithoutItsPast: move.test_a_moved_task_is_handed_out_as_it_was,
    broken.RedirectsLeftBehind: move.test_what_was_moved_is_known,
    broken.CarriedInMotion: move.test_only_a_run_at_rest_is_exported,
    broken.CountsLeftBehind: lambda harness: move.test_the_account_is_moved_along_and_adds_up(harness, 1),
    broken.RuleMovesNothing: lane_rules.test_a_slower_rule_counts_from_the_last_request,
    broken.AskedOnce: lambda harness: workers.test_a_worker_hears_what_was_asked_of_it(harness, "drain"),
    broken.LastWriterWins: compare_and_swap.test_only_the_newest_version_can_be_replaced,
    broken.OnceForgotten: lambda harness: runs.test_a_run_to_be_started_once_never_starts_again(harness, "finish"),
    broken.PriorityIgnored: priority.test_higher_bands_come_first,
    broken.RunPriorityIgnored: lambda harness: (
        priority.test_a_more_urgent_run_gets_fifteen_of_sixteen_and_the_oldest_one(harness, 1)
    ),
    broken.UrgentRunsOnly: lambda harness: priority.test_a_more_urgent_run_gets_fifteen_of_sixteen_and_the_oldest_one(
        harness, 1
    ),
    broken.OldestOfItsRun: priority.test_the_oldest_of_a_less_urgent_run_comes_whatever_its_band,
    broken.AutoIsRetried: lambda harness: ack.test_a_retry_is_a_dead_letter(harness, 0.0),
    broken.AutoComesBack: lambda harness: ack.test_a_lease_that_ends_unsettled_leaves_a_dead_letter(harness, "expired"),
    broken.ReleasedAtOnce: settle.test_released_for_later_is_due_then_and_costs_no_attempt,
    broken.ReleaseLosesItsPlace: lambda harness: settle.test_released_goes_back_to_its_place(harness, (0, 1, 2)),
    broken.PausedHandedOut: runs.test_a_paused_run_hands_out_nothing_and_a_resumed_one_does,
    broken.ServesIgnored: lambda harness: share.test_a_worker_gets_nothing_it_does_not_serve(harness, ["films"]),
    broken.LateLinksKept: runs.test_a_late_settle_of_a_cancelled_task_keeps_records_and_drops_links,
    broken.LateRecordsDropped: runs.test_a_late_settle_of_a_cancelled_task_keeps_records_and_drops_links,
    broken.ReviveWithoutLimit: (runs.test_no_more_than_the_limit_are_revived_the_oldest_first_and_in_the_end_all),
    broken.DropWithoutLimit: lambda harness: drop.test_no_more_than_the_limit_at_once_and_in_the_end_all(
        harness, "dead"
    ),
    broken.DroppedCountsDead: drop.test_dead_letters_are_given_up_and_nothing_else,
    broken.DroppedComesBack: drop.test_dead_letters_are_given_up_and_nothing_else,
    broken.StatsByNumber: stats.test_the_accounts_of_many_runs_come_in_the_order_asked_for,
    broken.UptoExcluded: inspect.test_windows_that_follow_each_other_find_everything_once,
    broken.BeforeIncluded: runs.test_pages_of_runs_follow_each_other,
    broken.LanesByTheAlphabet: lambda harness: lane_list.test_pages_of_lanes_by_name_follow_each_other(
        harness, 3, of_a_run=False
    ),
    broken.LikeIsAPattern: lambda harness: lane_list.test_lanes_are_searched_by_a_part_of_the_name(
        harness, "_", ["b_.test"]
    ),
    broken.ParkedForEver: lambda harness: lane_list.test_lanes_in_one_condition_only(
        harness, "parked", ["both", "parked"]
    ),
    broken.FiguresOfBefore: workers.test_figures_that_are_too_long_are_left_out,
    broken.GroupsRemember: lambda harness: inspect.test_groups_tell_only_of_what_is_still_dead(harness, "drop"),
    broken.NeedsHoldUpOthers: needs.test_work_without_needs_is_found_behind_work_with_them,
    broken.NextInOfAll: needs.test_next_in_does_not_speak_of_what_a_worker_cannot_do,
    broken.NeedsLeftBehind: needs.test_a_run_moves_with_what_its_tasks_need,
    broken.NeedsIgnored: needs.test_a_task_goes_only_to_who_has_what_it_needs,
    broken.NeedsEndWithTheLease: lambda harness: needs.test_what_comes_back_needs_the_same(harness, 0.0, "retry"),
    broken.ExitsShareALane: exits.test_lanes_of_one_host_are_paced_apart_by_exit,
    broken.SeenByTheRunItself: seen_sets.test_a_run_knows_its_own_tasks_however_often_they_are_added,
    broken.RememberedForEver: seen_sets.test_a_set_remembers_for_its_time_to_the_hour,
    broken.SetGoesWithItsRun: seen_sets.test_a_set_outlives_its_runs,
    broken_cache.CacheWithoutBound: cache.test_the_oldest_go_first_when_there_is_no_room,
    broken_cache.CacheForEver: cache.test_nothing_is_there_for_longer_than_a_week,
    broken_cache.CacheKeepsItsPlace: cache.test_a_put_replaces_what_its_key_had_and_is_the_newest,
    broken_cache.CacheClearsOtherHosts: cache.test_entries_are_cleared_by_key_by_host_and_all,
    broken.ExpiredUnseen: lambda harness: reap.test_what_expired_is_dead_at_the_next_look(harness, "stats"),
    broken.UndoForgetsLeased: undo.test_a_leased_task_is_still_its_workers,
    broken.UndoFetchesAgain: undo.test_what_came_late_stays_done,
    broken.UndoForEver: undo.test_after_an_hour_it_is_too_late,
    broken.UndoOfAReplacedRun: undo.test_while_another_run_goes_on_in_its_place_undo_is_refused,
    broken.LostWhileCancelled: undo.test_a_task_whose_lease_ended_meanwhile_waits_and_is_charged_to_nobody,
    broken.UndoRunsAll: lambda harness: undo.test_undo_brings_back_the_state_that_the_run_was_in(harness, "paused"),
    broken.DelayedBelowZero: (runs.test_nothing_is_delayed_in_a_cancelled_run_whatever_others_do_when_its_time_comes),
    broken.EntriesOfFailures: lambda harness: outbox.test_only_what_is_done_leaves_entries(harness, "retry"),
    broken.LateEntriesKept: outbox.test_entries_of_a_cancelled_run_are_drained_and_late_ones_dropped,
    broken.FinishedWithEntries: outbox.test_a_run_is_finished_when_its_outbox_is_drained,
    broken.OutboxWithoutBound: outbox.test_a_run_whose_outbox_is_full_waits_and_goes_on_when_it_is_drained,
    broken.CountersWithoutBound: run_counters.test_names_beyond_the_bound_are_summed_under_other,
    broken.FieldsOfDroppedRecords: run_counters.test_a_page_that_is_another_counts_without_its_records,
    broken_discard.DeadWithinAMinute: (
        discard.test_a_run_says_how_long_its_dead_letters_are_kept_and_that_is_a_minute_at_least
    ),
    broken_discard.DiscardedForgotten: discard.test_what_was_removed_stays_known,
    broken_discard.DiscardedCancelled: discard.test_a_dead_letter_is_removed_when_its_retention_is_over,
    broken_discard.DiscardedMakesRoom: discard.test_what_was_removed_counts_towards_max_pages,
    broken_discard.DiscardedByItsAge: (discard.test_a_revived_letter_that_dies_again_is_kept_for_its_time_from_then_on),
    broken_page_limit.LimitReachedIsTaken: lambda harness: page_limit.test_a_limit_that_is_reached_already_is_refused(
        harness, 2
    ),
    broken_page_limit.LeftoversOfAnHour: page_limit.test_what_was_left_is_kept_for_a_day,
    broken_page_limit.SitemapsArePages: aside.test_a_run_of_one_page_that_begins_with_a_sitemap_fetches_one_page,
    broken_page_limit.LimitRunsAll: page_limit.test_a_run_that_was_paused_is_paused_again,
    broken_page_limit.ReviveDropsTheRest: page_limit.test_reviving_keeps_what_a_page_limit_left,
    broken_page_limit.RevivedQueueUp: page_limit.test_revived_pages_come_first_under_a_limit,
    broken_page_states.FirstStateStays: page_states.test_what_is_saved_again_takes_the_place_of_the_former,
    broken_page_states.StatesOutliveRuns: page_states.test_they_go_with_their_run_and_none_comes_after_it,
    broken_push.PushOfTheKnown: push.test_known_tasks_are_told_as_known_and_stay_where_they_are,
    broken_push.PushWithoutAName: push.test_a_repeated_request_returns_the_same_batch,
    broken_push.PushedToAnybody: push.test_only_a_worker_that_has_what_it_needs_is_given_it,
    broken_push.PushIntoPaused: push.test_a_paused_run_takes_tasks_and_leases_none,
    broken_push.PushesTheProbe: push.test_a_probe_of_a_parked_lane_is_left_to_claims,
    broken_push.PushedForFree: push.test_a_run_pays_for_what_it_pushes,
    broken.LimitIgnored: lane_rules.test_a_limit_replaces_what_runs_ask,
}
ALL = [
    kind
    for module in (broken, broken_push, broken_discard, broken_page_limit, broken_page_states)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, ModelQueue) and kind is not ModelQueue
]
BY_THE_MACHINE = [kind for kind in ALL if kind not in BY_A_TEST]
ON_SQLITE = broken_sqlite.TamperedSqliteQueue.__subclasses__()


@pytest.mark.faults  # of the suite itself: it takes minutes
@pytest.mark.parametrize("kind", BY_THE_MACHINE, ids=lambda kind: kind.__name__)
def test_the_state_machine_catches(kind: type[ModelQueue]) -> None:
    with pytest.raises(AssertionError):
        drive(lambda: model_opener(kind), examples=300, steps=40, shrink=False)


@pytest.mark.faults  # of the suite itself: it takes minutes
@pytest.mark.parametrize("kind", ON_SQLITE, ids=lambda kind: kind.__name__)
def test_the_state_machine_catches_on_sqlite(kind: type[broken_sqlite.TamperedSqliteQueue]) -> None:
    with pytest.raises((AssertionError, ActionRequired)):  # some faults the engine itself runs into
        drive(lambda: broken_sqlite.opener(kind), examples=300, steps=40, shrink=False)


@pytest.mark.parametrize("kind", BY_A_TEST, ids=lambda kind: kind.__name__)
async def test_a_test_of_the_contract_catches(kind: type[ModelQueue], tmp_path: Path) -> None:
    harness = QueueHarness(model_opener(kind), tmp_path)
    harness.queue = await harness.open()
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await BY_A_TEST[kind](harness)
