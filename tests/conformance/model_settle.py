"""The model's idea of settling: which verdicts are allowed, and what each outcome makes true."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from conformance.model_state import ENDED, ModelLease, ModelRun, ModelTask, identity, micros
from shoal.core.capability import Needs
from shoal.core.lane import Pace
from shoal.core.needs import skip_refused
from shoal.core.run import run_of
from shoal.core.task import SEEN, Admission, LaneChange, Outcome, Task, Verdict
from shoal.queue.base import LEASE_SECONDS, LIMIT_SECONDS, MAX_COUNTER_NAMES, StoredEntry, StoredRecord


class ModelSettle:
    clock: Callable[[], int]
    all_runs: dict[int, ModelRun]
    tasks: dict[int, ModelTask]
    seen: dict[tuple[int, bytes], int]
    leases: dict[int, ModelLease]
    last_entry: int
    settled: dict[tuple[int, int], int]  # (task, lease) -> remembered until
    admit: Callable[[int, Task, Mapping[str, Pace]], Admission]
    change_lane: Callable[[LaneChange], None]
    count_failure: Callable[[ModelTask, str], None]
    forget_failures_of: Callable[[ModelTask], None]
    number_needs: Callable[[int, Sequence[Task]], list[Needs]]

    def may_answer(self, outcome: Outcome) -> list[Verdict]:
        """The verdicts the contract allows, the model's own first."""
        now, pair = self.clock(), (outcome.task, outcome.lease)
        task = self.tasks.get(outcome.task)
        if pair in self.settled:
            newest = max(lease for id, lease in self.settled if id == outcome.task)
            sure = now < self.settled[pair] and outcome.lease == newest
            return ["already"] if sure else ["already", "stale"]
        if task is None or task.lease != outcome.lease:
            return ["stale"]
        if task.state == "leased":
            return ["ok"]
        if task.state == "cancelled":
            return ["ok"] if task.kept == "leased" else ["stale"]
        return ["stale"]

    def make_true(self, outcome: Outcome, verdict: Verdict, paces: Mapping[str, Pace] = {}) -> None:
        task = self.tasks.get(outcome.task)
        if task is None or verdict == "already":
            return
        about = self.all_runs[task.run]
        if verdict == "stale":
            about.stale += 1
            return
        late = task.state == "cancelled"
        if outcome.result == "part":
            self.keep_links(task, outcome, paces, late=late)
            return
        self.remember(task, outcome)
        for change in outcome.lanes:
            self.change_lane(change)
        if outcome.attempt:
            task.history.append(outcome.attempt)
            about.bytes += outcome.attempt.size
        kept = False
        if outcome.result == "done":
            kept = self.finish_task(task, outcome, paces, late=late)
        elif not late:
            self.end_attempt(task, outcome)
        else:
            self.end_late(task, outcome, about)
        self.count(about, outcome, with_records=kept)

    def count(self, about: ModelRun, outcome: Outcome, *, with_records: bool) -> None:
        for name, number in outcome.counters.items():
            if with_records or not name.startswith("field."):
                names = [known for known in about.counters if known != "other"]
                known = name if name in about.counters or len(names) < MAX_COUNTER_NAMES else "other"
                about.counters[known] = about.counters.get(known, 0) + number

    def remember(self, task: ModelTask, outcome: Outcome) -> None:
        lease = self.leases.get(outcome.lease)
        span = lease.span if lease else LEASE_SECONDS
        self.settled[task.id, outcome.lease] = self.clock() + micros(2 * span)
        self.leave_lease(task.id, outcome.lease)

    def forget_answers(self, task: ModelTask) -> None:
        """From here on a backend may or may not know which of its leases were settled."""
        self.settled.update({pair: 0 for pair in self.settled if pair[0] == task.id})

    def leave_lease(self, task: int, number: int) -> None:
        lease = self.leases.get(number)
        if lease:
            lease.slots.pop(task, None)
            if not lease.slots:
                del self.leases[number]

    def finish_task(self, task: ModelTask, outcome: Outcome, paces: Mapping[str, Pace], *, late: bool) -> bool:
        """Answers whether what it brought was kept."""
        task.attempts += 1
        self.end(task, "done", "")
        if outcome.redirect_digest is not None:
            first = self.seen.setdefault((task.run, identity(outcome.redirect_digest)), task.id)
            if first != task.id:
                return False
        self.keep_records(task, outcome)
        self.keep_links(task, outcome, paces, late=late)
        self.keep_entries(task, outcome, late=late)
        return True

    def stop_settled(self, outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> None:
        """Once per commit: what an outcome found is taken whatever came before it in the same one."""
        settled = zip(outcomes, verdicts, strict=True)
        for run in {run_of(it.task) for it, verdict in settled if verdict == "ok" and it.result != "part"}:
            if run in self.all_runs:
                self.stop_at_limit(self.all_runs[run])

    def stop_at_limit(self, about: ModelRun) -> None:
        """When as many pages have ended as were asked for, the rest is cancelled and so has the run."""
        states = [task.state for task in self.tasks.values() if task.run == about.run.id]
        is_open = "ready" in states or "leased" in states
        mine = [task for task in self.tasks.values() if task.run == about.run.id and task.state != "leased"]
        ended = sum(map(self.takes_page, mine))
        if about.takes_work and is_open and 0 < about.run.max_pages <= ended:
            self.cancel_open(about.run.id)
            about.undo_until, about.before_cancel = self.clock() + micros(LIMIT_SECONDS), about.run.state
            self.set_state(about, "finished")

    def keep_records(self, task: ModelTask, outcome: Outcome) -> None:
        about = self.all_runs[task.run]
        records = self.unclaimed_records(task, outcome)
        task.first_record = about.last_record + 1 if records else 0
        for data in records:
            about.last_record += 1
            about.records.append(StoredRecord(about.last_record, task.id, data))
        task.records += len(records)

    def unclaimed_records(self, task: ModelTask, outcome: Outcome) -> list[bytes]:
        if not outcome.record_keys:
            return list(outcome.records)
        pairs = zip(outcome.records, outcome.record_keys, strict=True)
        return [
            data for data, key in pairs
            if not key or self.seen.setdefault((task.run, identity(key)), task.id) == task.id
        ]  # fmt: skip

    def keep_links(self, task: ModelTask, outcome: Outcome, paces: Mapping[str, Pace], *, late: bool) -> None:
        about = self.all_runs[task.run]
        if not late and about.takes_work:
            outcome = skip_refused(outcome, self.number_needs(task.run, outcome.found))
            answers = [self.admit(task.run, found, paces) for found in outcome.found]
            about.skipped[SEEN] += answers.count("seen")
            about.skipped = +about.skipped
        about.skipped.update(reason for reason, _ in outcome.skipped)
        about.samples.extend(outcome.skipped)

    def keep_entries(self, task: ModelTask, outcome: Outcome, *, late: bool) -> None:
        about = self.all_runs[task.run]
        for entry in outcome.outbox if not late and about.takes_work else ():
            self.last_entry += 1
            about.entries.append(StoredEntry(self.last_entry, task.run, entry.kind, entry.key, entry.data))

    def end_attempt(self, task: ModelTask, outcome: Outcome) -> None:
        if outcome.result == "retry" and task.task.ack == "manual":
            task.attempts += 1
            task.failures[outcome.cause] += 1
            self.all_runs[task.run].retries += 1
            task.state, task.due_at = "ready", self.clock() + micros(outcome.after)
        elif outcome.result == "released":
            task.state = "ready"
            if outcome.after > 0:
                task.due_at = self.clock() + micros(outcome.after)
        elif outcome.result in ("dead", "retry"):
            task.attempts += 1
            task.evidence = outcome.evidence
            self.end(task, "dead", outcome.cause)
        elif outcome.result == "cancelled":
            self.end(task, "cancelled", outcome.cause)

    def end_late(self, task: ModelTask, outcome: Outcome, about: ModelRun) -> None:
        """It stays cancelled with its run; what would have come back does so if that is undone."""
        returns = outcome.result == "released" or (outcome.result == "retry" and task.task.ack == "manual")
        task.kept = None
        if returns and about.undo_until > self.clock():
            self.end_attempt(task, outcome)
            task.state, task.kept = "cancelled", "ready"

    def end(self, task: ModelTask, state: str, cause: str) -> None:
        task.state, task.cause, task.finished_at, task.kept = state, cause, self.clock(), None
        if state == "dead":
            self.count_failure(task, cause)
        elif state == "done":
            self.forget_failures_of(task)

    def cancel_open(self, run: int) -> None:
        for task in self.tasks.values():
            if task.run == run and task.state in ("ready", "leased"):
                task.state, task.kept = "cancelled", task.state  # it keeps its lease number, for a late answer
                self.forget_answers(task)

    def set_state(self, about: ModelRun, state: str) -> None:
        now = self.clock()
        about.run = replace(about.run, state=state, changed_at=now, finished_at=now if state in ENDED else 0)
