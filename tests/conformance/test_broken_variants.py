"""Every rule of the suite has been seen to fail: each broken queue is caught."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from conformance import broken, broken_sqlite
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
from conformance import test_contract_share as share
from conformance import test_contract_stats as stats
from conformance import test_contract_swap as swap
from conformance import test_contract_workers as workers
from conformance.machine import drive
from conformance.model import ModelQueue
from conformance.world import World, model_opener
from shoal.errors import Act

# These need something rare or dishonest to happen, so a test of their own catches them (sooner).
BY_A_TEST: dict[type[ModelQueue], Callable[[World], Awaitable[None]]] = {
    broken.FencedByLeaseOnly: fencing.test_a_lease_covers_only_its_own_tasks,
    broken.ReserveTakesNoSlot: lanes.test_reserve_and_claim_share_the_slots_of_a_lane,
    broken.ExtendDoesNothing: claim.test_an_extended_lease_lives_on,
    broken.ExpiredHandedOut: reap.test_a_task_whose_time_is_over_is_not_handed_out,
    broken.SilentExpiry: reap.test_a_delayed_task_expires_too,
    broken.ReviveDoubles: runs.test_revived_dead_letters_are_ready_with_fresh_attempts,
    broken.NothingOldest: priority.test_the_oldest_is_taken_within_sixteen_picks,
    broken.UnfairShare: share.test_runs_with_lanes_of_their_own_share_a_worker_by_weight,
    broken.MaxPagesIgnored: share.test_never_more_than_max_pages_are_handed_out,
    broken.HalfABatch: settle.test_a_batch_that_cannot_be_stored_leaves_nothing_behind,
    broken.SeqGivenAgain: lambda world: results.test_no_seq_is_given_twice(world, beyond=0),
    broken.VersionsComeAgain: swap.test_a_document_made_again_has_no_version_of_before,
    broken.SilentWorkersStay: workers.test_workers_that_are_silent_leave_when_the_old_is_removed,
    broken.IdsInAnyOrder: results.test_ids_come_in_the_order_they_were_asked_for,
    broken.RecordsOfAll: results.test_records_of_chosen_tasks_come_in_the_order_of_settling,
    broken.CarriesOpenOnly: carry.test_everything_the_run_has_seen_is_carried_out_by_number,
    broken.CarriedTwice: lambda world: carry.test_the_account_is_carried_along_and_adds_up(world, times=2),
    broken.CarriedWithoutItsPast: carry.test_a_carried_task_is_handed_out_as_it_was,
    broken.RedirectsLeftBehind: carry.test_what_was_carried_is_known_and_new_tasks_come_after_it,
    broken.CarriedInMotion: carry.test_only_a_run_at_rest_is_carried_out,
    broken.CountsLeftBehind: lambda world: carry.test_the_account_is_carried_along_and_adds_up(world, 1),
    broken.RuleMovesNothing: rule.test_a_slower_rule_counts_from_the_last_request,
    broken.AskedOnce: lambda world: workers.test_a_worker_hears_what_was_asked_of_it(world, "drain"),
    broken.LastWriterWins: swap.test_only_the_newest_version_can_be_replaced,
    broken.OnceForgotten: lambda world: runs.test_a_run_to_be_started_once_never_starts_again(
        world, "finish"
    ),
    broken.PriorityIgnored: priority.test_higher_bands_come_first,
    broken.PausedHandedOut: runs.test_a_paused_run_hands_out_nothing_and_a_resumed_one_does,
    broken.ServesIgnored: lambda world: share.test_a_worker_gets_nothing_it_does_not_serve(world, ["films"]),
    broken.LateLinksKept: runs.test_a_late_settle_of_a_cancelled_task_keeps_records_and_drops_links,
    broken.LateRecordsDropped: runs.test_a_late_settle_of_a_cancelled_task_keeps_records_and_drops_links,
    broken.ReviveWithoutLimit: (
        runs.test_no_more_than_the_limit_are_revived_the_oldest_first_and_in_the_end_all
    ),
    broken.DropWithoutLimit: lambda world: drop.test_no_more_than_the_limit_at_once_and_in_the_end_all(
        world, "dead"
    ),
    broken.DroppedCountsDead: drop.test_dead_letters_are_given_up_and_nothing_else,
    broken.DroppedComesBack: drop.test_dead_letters_are_given_up_and_nothing_else,
    broken.StatsByNumber: stats.test_the_accounts_of_many_runs_come_in_the_order_asked_for,
    broken.UptoExcluded: look.test_windows_that_follow_each_other_find_everything_once,
    broken.BeforeIncluded: runs.test_pages_of_runs_follow_each_other,
    broken.LanesByTheAlphabet: lambda world: lane_list.test_pages_of_lanes_by_name_follow_each_other(
        world, 3, of_a_run=False
    ),
    broken.LikeIsAPattern: lambda world: lane_list.test_lanes_are_searched_by_a_part_of_the_name(
        world, "_", ["b_.test"]
    ),
    broken.ParkedForEver: lambda world: lane_list.test_lanes_in_one_condition_only(
        world, "parked", ["both", "parked"]
    ),
    broken.FiguresOfBefore: workers.test_figures_that_are_too_long_are_left_out,
    broken.GroupsRemember: lambda world: look.test_groups_tell_only_of_what_is_still_dead(world, "drop"),
    broken.LimitIgnored: rule.test_a_limit_replaces_what_runs_ask,
}
ALL = [
    kind
    for kind in vars(broken).values()
    if isinstance(kind, type) and issubclass(kind, ModelQueue) and kind is not ModelQueue
]
BY_THE_MACHINE = [kind for kind in ALL if kind not in BY_A_TEST]
ON_SQLITE = broken_sqlite.Meddled.__subclasses__()


@pytest.mark.faults  # of the suite itself: it takes minutes
@pytest.mark.parametrize("kind", BY_THE_MACHINE, ids=lambda kind: kind.__name__)
def test_the_state_machine_catches(kind: type[ModelQueue]) -> None:
    with pytest.raises(AssertionError):
        drive(lambda: model_opener(kind), examples=300, steps=40, shrink=False)


@pytest.mark.faults  # of the suite itself: it takes minutes
@pytest.mark.parametrize("kind", ON_SQLITE, ids=lambda kind: kind.__name__)
def test_the_state_machine_catches_on_sqlite(kind: type[broken_sqlite.Meddled]) -> None:
    with pytest.raises((AssertionError, Act)):  # some faults the engine itself runs into
        drive(lambda: broken_sqlite.opener(kind), examples=300, steps=40, shrink=False)


@pytest.mark.parametrize("kind", BY_A_TEST, ids=lambda kind: kind.__name__)
async def test_a_test_of_the_contract_catches(kind: type[ModelQueue], tmp_path: Path) -> None:
    world = World(model_opener(kind), tmp_path)
    world.queue = await world.open()
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await BY_A_TEST[kind](world)
