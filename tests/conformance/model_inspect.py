"""The model's answers to people: stats, listings and filters, all by scanning."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from conformance.model_state import ModelLane, ModelLease, ModelRun, ModelTask, identity
from shoal.core.capability import capability_names
from shoal.core.lane import LaneState
from shoal.core.needs import shown
from shoal.core.run import Run, RunState
from shoal.core.stats import Stats
from shoal.core.task import State
from shoal.core.task_kind import is_aside
from shoal.queue.base import MAX_WHOLE_PAGE_STATES, DeadLetterGroup, PageState, StoredRecord, TaskFilter, TaskView
from shoal.queue.page_state_limits import check_page_states


def fits(word: str, pattern: str) -> bool:
    """Exact, or a glob in which only "*" means something."""
    literal = pattern.replace("[", "[[]").replace("?", "[?]")
    return fnmatch.fnmatchcase(word, literal)


class ModelInspect:
    clock: Callable[[], int]
    all_runs: dict[int, ModelRun]
    tasks: dict[int, ModelTask]
    seen: dict[tuple[int, bytes], int]
    all_lanes: dict[str, ModelLane]
    leases: dict[int, ModelLease]
    expire_waiting: Callable[[int], int]

    async def runs(
        self,
        *,
        key: str = "",
        name: str = "",
        states: Collection[RunState] = (),
        scraper: str = "",
        before: int = 0,
        limit: int = 100,
    ) -> list[Run]:
        listed = [about.run for about in reversed(self.all_runs.values())]
        listed = [run for run in listed if scraper in ("", run.scraper) and not 0 < before <= run.id]
        if name:
            exact = [run for run in listed if run.name == name]
            begun = [run for run in listed if run.name.startswith(name)]
            listed = exact or (begun if len(begun) == 1 else [])
        return [run for run in listed if key in ("", run.key) and (not states or run.state in states)][:limit]

    async def stats(self, run: int) -> Stats:
        about = self._run(run)
        self.expire_waiting(run)
        states = [task.shown(self.clock()) for task in self.tasks.values() if task.run == run]
        return Stats(
            seen=len(states), delayed=states.count("delayed"),
            ready=states.count("ready") + states.count("delayed"),
            leased=states.count("leased"), done=states.count("done"), dead=states.count("dead"),
            cancelled=states.count("cancelled"), records=len(about.records) + about.trimmed,
            retries=about.retries, lost=about.lost, stale=about.stale, bytes=about.bytes,
            trimmed=about.trimmed, discarded=states.count("discarded"), aside=self.count_aside(run),
            outbox=len(about.entries),
            claimable=self.claimable(run),
            skipped=dict(about.skipped), needs=self.ready_by_needs(run),
        )  # fmt: skip

    def count_aside(self, run: int) -> int:
        mine = [task for task in self.tasks.values() if task.run == run and task.state in ("done", "dead")]
        return sum(is_aside(task.task.kind) for task in mine)

    async def run_counters(self, run: int) -> dict[str, int]:
        return dict(self._run(run).counters)

    async def stats_of(self, runs: Sequence[int]) -> list[Stats]:
        return [await self.stats(run) if run in self.all_runs else Stats() for run in runs]

    def ready_by_needs(self, run: int) -> dict[str, int]:
        now = self.clock()
        mine = [task for task in self.tasks.values() if task.run == run and task.shown(now) == "ready"]
        return dict(Counter(shown(capability_names(task.task.needs)) for task in mine if task.task.needs))

    def claimable(self, run: int) -> int:
        waiting = [task for task in self.must_hand_out(None) if task.run == run]
        total = 0
        for name in {task.task.lane for task in waiting}:
            lane = self.all_lanes[name]
            places = self.free_places(lane) if self.spacing(lane) == 0 else 1
            total += min(places, sum(task.task.lane == name for task in waiting))
        return min(total, max(0, self.pages_left(run, strict=True)))

    def matching(self, run: int, state: State | None, where: TaskFilter) -> list[ModelTask]:
        now = self.clock()
        return [
            task
            for task in self.tasks.values()
            if task.run == run
            and task.state != "discarded"
            and (state is None or state in (task.state, task.shown(now)))
            and where.lane in ("", task.task.lane)
            and (not where.cause or fits(task.cause, where.cause))
            and (not where.url or fits(task.task.url, where.url))
            and (not where.ids or task.id in where.ids)
        ]

    async def list_tasks(
        self,
        run: int,
        *,
        state: State | None = None,
        where: TaskFilter = TaskFilter(),
        after: int = 0,
        upto: int = 0,
        limit: int = 100,
    ) -> list[TaskView]:
        self.expire_waiting(run)
        found = [task for task in self.matching(run, state, where) if task.id > after]
        found = [task for task in found if not 0 < upto < task.id]
        return [self.view(task) for task in found[:limit]]

    async def find(self, run: int, digest: bytes) -> TaskView | None:
        self.expire_waiting(run)
        id = self.seen.get((run, identity(digest)))
        return self.view(self.tasks[id]) if id is not None else None

    async def ids(self, run: int, digests: Sequence[bytes]) -> list[int]:
        return [self.seen.get((run, identity(digest)), 0) for digest in digests]

    def view(self, task: ModelTask) -> TaskView:
        if task.state == "discarded":
            return TaskView(id=task.id, run=task.run, url="", lane="", state="dead", cause=task.cause)
        lease = self.leases.get(task.lease) if task.state == "leased" else None
        what = task.task
        return TaskView(
            task.id, task.run, what.url, what.lane, task.shown(self.clock()), what.kind, what.priority,
            what.depth, what.parent, task.attempts, task.lost, task.added_at, task.due_at,
            task.finished_at, task.lease, lease.worker if lease else "", lease.until if lease else 0,
            task.cause, task.records, tuple(task.history), task.evidence,
            None if task.state in ("done", "cancelled") else what.meta,
            () if task.state in ("done", "cancelled") else capability_names(what.needs),
            what.ack if task.state == "leased" else "manual",
            (task.expires_at or 0) if task.state == "leased" else 0,
        )  # fmt: skip

    async def dead_groups(self, run: int, limit: int = 100) -> list[DeadLetterGroup]:
        self.expire_waiting(run)
        groups: dict[tuple[str, str], list[ModelTask]] = {}
        for task in self.matching(run, "dead", TaskFilter()):
            groups.setdefault((task.task.lane, task.cause), []).append(task)
        listed = [
            DeadLetterGroup(
                lane, cause, len(tasks), tasks[0].task.url,
                tasks[0].history[-1].message if tasks[0].history else "",
                min(task.finished_at for task in tasks), max(task.finished_at for task in tasks),
            )
            for (lane, cause), tasks in groups.items()
        ]  # fmt: skip
        return sorted(listed, key=lambda group: -group.count)[:limit]

    async def skipped(self, run: int, limit: int = 100) -> list[tuple[str, str]]:
        return self._run(run).samples[:limit]

    async def records(
        self, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = ()
    ) -> list[StoredRecord]:
        kept = [it for it in self._run(run).records if it.seq > after and (not tasks or it.task in tasks)]
        return kept[:limit]

    async def save_page_states(self, run: int, states: Sequence[PageState]) -> None:
        check_page_states(run, states)
        if run in self.all_runs:
            self.all_runs[run].page_states |= {state.task: state for state in states}

    async def page_states(
        self, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = (), whole: bool = False
    ) -> list[PageState]:
        saved = self.all_runs[run].page_states if run in self.all_runs else {}
        kept = [saved[task] for task in sorted(saved) if task > after and (not tasks or task in tasks)]
        if whole:
            return kept[: min(limit, MAX_WHOLE_PAGE_STATES)]
        return [PageState(state.task, state.head) for state in kept[:limit]]

    async def lanes(
        self,
        *,
        run: int | None = None,
        limit: int = 100,
        order: str = "ready",
        after: str = "",
        like: str = "",
        only: str = "",
        names: Collection[str] = (),
    ) -> list[LaneState]:
        mine = [lane for lane in self.all_lanes.values() if run is None or run in lane.asks]
        listed = [
            lane
            for lane in (self.lane_state(lane, run) for lane in mine)
            if lane.name > after and like in lane.name and (not names or lane.name in names)
            if self.is_only(lane, only)
        ]
        if order == "name":
            return sorted(listed, key=lambda lane: lane.name)[:limit]
        return sorted(listed, key=lambda lane: -lane.ready)[:limit]

    def is_only(self, lane: LaneState, only: str) -> bool:
        overridden = lane.spacing_override >= 0 or lane.limit >= 0
        return {"": True, "parked": lane.parked, "held": lane.held_until > 0, "overridden": overridden}[only]

    def lane_state(self, lane: ModelLane, run: int | None = None) -> LaneState:
        held = lane.held_until > self.clock()
        waiting = [t for t in self.tasks.values() if t.state == "ready" and t.task.lane == lane.name]
        waiting = [t for t in waiting if run is None or t.run == run]
        return LaneState(
            lane.name, lane.next_at, self.spacing(lane), self.asked(lane), lane.learned,
            self.max_in_flight(lane), self.in_flight(lane.name), len(waiting),
            lane.held_until if held else 0, bool(lane.parked) and held, lane.reason if held else "",
            lane.spacing_override, lane.limit,
        )  # fmt: skip
