"""Pusher: adds a task that came to a worker's port and leases it to that worker, in one step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from shoal.config.load import Settings
from shoal.core.lane import Pace
from shoal.core.run import Run
from shoal.core.task import Task
from shoal.core.typed_task import daily_scraper_name
from shoal.errors import UsageError
from shoal.queue.base import PushResult, Queue
from shoal.queue.daily_runs import DailyRuns
from shoal.queue.request_ids import new_request_id
from shoal.runs.identity import is_single_process, resolve_run
from shoal.runs.url_policy import UrlPolicy, run_settings
from shoal.web.push.request import PushAnswer, PushRequest, typed_task
from shoal.worker.pool.child_protocol import PushedBatch
from shoal.worker.pool.push_targets import PushTarget, PushTargets

MAX_POLICIES = 100  # runs whose rules for URLs are kept


class Refused(Exception):
    """This worker does not take it; nothing was changed, and another may."""


class Pusher:
    def __init__(
        self,
        queue: Queue,
        settings: Settings,
        targets: PushTargets,
        *,
        serves: Callable[[str], bool],
        can_run: Callable[[Run], bool],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._queue = queue
        self._settings = settings
        self._targets = targets
        self._serves = serves  # whether there is code for tasks of a type, by the name of its runs
        self._can_run = can_run
        self._is_stopping = is_stopping
        self._daily_runs = DailyRuns(queue)
        self._policies: dict[int, UrlPolicy] = {}

    async def push(self, request: PushRequest) -> PushAnswer:
        """Raises UsageError for what no worker could take, and the queue's own errors."""
        try:
            if request.task is not None:
                return await self._push_typed(request)
            return await self._push_page(request)
        except Refused as refusal:
            return PushAnswer(refused=str(refusal), load=self._targets.load())

    async def _push_typed(self, request: PushRequest) -> PushAnswer:
        task = typed_task(request.task or {})
        core, pace = task.to_queue_task(request.id), task.pace()
        paces = {} if pace is None else {core.lane: pace}
        target = self._target(core, self._serves(daily_scraper_name(task.type)), request.anyway)
        lease = Lease(self._queue, self._settings, self._targets, target)

        async def put(run: int, new: Sequence[Task]) -> Sequence[str]:
            return await lease.put(run, new, paces)

        # With a name of its own it is known by that, also where it comes twice because an answer was lost.
        (id,) = await self._daily_runs.put(task.type, [core], put, keyed=[bool(task.key or request.id)])
        return lease.answer(id)

    async def _push_page(self, request: PushRequest) -> PushAnswer:
        run = await resolve_run(self._queue, request.run)
        if run is None or run.name != request.run:
            raise UsageError(f"there is no run {request.run} in this queue", hint="shoal runs lists them")
        if is_single_process(run):
            raise UsageError(
                f"run {run.name} is worked on only by the process that started it",
                hint="shoal submit starts runs that workers share",
            )
        if run.state not in ("running", "paused"):
            raise UsageError(f"run {run.name} takes no more work: it has ended", hint="shoal submit starts one")
        policy = await self._policy(run)
        task = policy.make_task(1, request.url, request.priority)
        if isinstance(task, str):
            raise UsageError(f"{request.url!r:.200} cannot be fetched: {task}", hint="check the URL")
        lease = Lease(
            self._queue, self._settings, self._targets, self._target(task, self._can_run(run), request.anyway)
        )
        (state,) = await lease.put(run.id, [task], policy.paces([task]))
        if state == "rejected":
            raise UsageError(f"run {run.name} takes no more work: it has ended", hint="shoal submit starts one")
        (id,) = await self._queue.ids(run.id, [task.digest])
        return lease.answer(id)

    async def _policy(self, run: Run) -> UrlPolicy:
        if run.id not in self._policies:
            if len(self._policies) >= MAX_POLICIES:
                self._policies.clear()
            self._policies[run.id] = UrlPolicy(self._settings, await run_settings(self._queue, self._settings, run))
        return self._policies[run.id]

    def _target(self, task: Task, has_code: bool, anyway: bool) -> PushTarget | None:
        """Who takes it; None: it is for the queue. Raises Refused."""
        why = ""
        if self._is_stopping():
            why = "stopping"
        elif not has_code:
            why = "no-code"
        elif not set(task.needs) <= set(self._settings.has):
            why = "needs"
        target = None if why else self._targets.choose()
        if target is None and not anyway:
            raise Refused(why or "full")
        return target


class Lease:
    """One task on its way to one worker."""

    def __init__(self, queue: Queue, settings: Settings, targets: PushTargets, target: PushTarget | None) -> None:
        self._queue = queue
        self._settings = settings
        self._targets = targets
        self._target = target
        self._state = "known"

    async def put(self, run: int, tasks: Sequence[Task], paces: dict[str, Pace]) -> Sequence[str]:
        if self._target is None:
            added = await self._queue.add(run, tasks, paces)
            self._state = added[0]
            return added
        result = await self._push(self._target, run, tasks, paces)
        self._state = result.answers[0]
        return result.answers

    async def _push(self, target: PushTarget, run: int, tasks: Sequence[Task], paces: dict[str, Pace]) -> PushResult:
        sent, is_leased = time.monotonic(), False
        self._targets.reserve(target)
        try:
            result = await self._queue.push(
                run,
                tasks,
                target.worker,
                paces,
                lease=self._settings.lease,
                capabilities=self._settings.has,
                request_id=new_request_id(),  # where the answer is lost, the same batch is asked for again
            )
            is_leased = bool(result.claim.tasks)
        finally:
            if not is_leased:
                self._targets.cancel(target)
        if is_leased:
            target.send(PushedBatch(result.claim, sent))
        return result

    def answer(self, id: int) -> PushAnswer:
        state = self._state if self._state in ("leased", "added", "seen") else "known"
        worker = self._target.worker if self._target is not None and state == "leased" else ""
        return PushAnswer(id=id, state=state, worker=worker, load=self._targets.load())  # type: ignore[arg-type]
