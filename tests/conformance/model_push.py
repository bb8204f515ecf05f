"""The model's idea of a push: which of the new tasks may be leased at once, and which must be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from conformance.model_claim import HORIZON, ModelClaim
from conformance.model_state import ModelLease, ModelTask, identity
from shoal.core.lane import Pace
from shoal.core.task import Admission, Claim, Task
from shoal.queue.base import LEASE_SECONDS, PushResult
from shoal.queue.pushed import check_push, push_result


class ModelPush(ModelClaim):
    seen: dict[tuple[int, bytes], int]

    async def add(self, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None) -> list[Admission]:
        raise NotImplementedError

    def same_request(self, worker: str, request_id: str) -> ModelLease | None:
        raise NotImplementedError

    def as_claim(self, lease: ModelLease) -> Claim:
        raise NotImplementedError

    async def push(
        self,
        run: int,
        tasks: Sequence[Task],
        worker: str,
        paces: Mapping[str, Pace] | None = None,
        *,
        lease: float = LEASE_SECONDS,
        capabilities: Collection[str] = (),
        request_id: str = "",
    ) -> PushResult:
        has = check_push(tasks, capabilities)
        answers = await self.add(run, tasks, paces)
        ids = [self.seen.get((run, identity(task.digest)), 0) for task in tasks]
        held = self.same_request(worker, request_id)
        if held is None:
            number, time = self.next_lease(), self.virtual_time
            for id, answer in zip(ids, answers, strict=True):
                if answer == "added" and self.may_push(self.tasks[id], has):
                    held = held or self.open_lease(number, worker, lease, request_id)
                    self.give(self.tasks[id], held, self.all_lanes[self.tasks[id].task.lane].first_slot(self.clock()))
            self.virtual_time = time  # it was nobody's turn: only the run itself is further on
        return push_result(answers, ids, self.as_claim(held) if held else Claim(0))

    def may_push(self, task: ModelTask, has: Collection[str]) -> bool:
        lane, now = self.all_lanes[task.task.lane], self.clock()
        return (
            self.is_served(task.run, None)
            and task.due_at <= now
            and not task.is_expired(now)
            and set(task.task.needs) <= set(has)
            and self.pages_left(task.run, strict=False) > 0
            and not lane.parked
            and self.free_places(lane) > 0
            and lane.first_slot(now) <= now + HORIZON
        )

    def wrong_with_push(self, run: int, tasks: Sequence[Task], result: PushResult, has: Collection[str]) -> list[str]:
        """Every rule that was broken; the tasks are in the model already, and none of them is leased there."""
        told = zip(tasks, result.answers, strict=True)
        said = {self.seen[run, identity(task.digest)] for task, answer in told if answer == "leased"}
        if said != {leased.id for leased in result.claim.tasks}:
            return ["what is said to be leased is not what is in the claim"]
        if not said:
            return ["an empty push has a lease number"] if result.claim.lease else []
        wrong = self._wrong_as_a_whole(len(tasks), result.claim) + self._wrong_slots(result.claim)
        for leased in result.claim.tasks:
            wrong += self._wrong_with_task(leased, None, has, result.claim)
            if self.all_lanes[leased.lane].parked:
                wrong.append(f"{leased.url} of a parked lane is pushed")
        return wrong
