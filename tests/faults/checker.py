"""The checker: reads the histories that all processes of a fleet wrote and lists the broken promises.

A history is a list of events, each written by the process it happened in, around every call of the queue and
every execution of a handler. Times are of one clock (CLOCK_MONOTONIC of one machine), in seconds.

    claim    began, at, worker, lease, tasks, request
    settle   began, at, worker, outcomes: [[task, lease, result, verdict]]
    start    at, worker, task, lease           the handler began
    end      at, worker, task, lease           the handler came to its end
    kill     at, workers, how                  written by whoever did it: "child", "machine", "stop"
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]

FINAL = ("done", "dead", "cancelled")


@dataclass(frozen=True)
class Limits:
    """How soon tasks must run again after their worker was killed."""

    child: float = 2.0  # under a supervisor
    machine: float = 35.0  # lease + 5 s


KILL_SLACK = 0.01  # seconds that a worker may still go on for while it is being killed


@dataclass
class CheckResult:
    tasks: int
    executions: int = 0
    in_flight: int = 0  # tasks under way in workers that were killed or stopped, over all of them
    stale: int = 0  # late answers that were refused
    rerun_delays: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # by kind of kill
    violations: list[str] = field(default_factory=list)

    @property
    def extra(self) -> int:
        return self.executions - self.tasks

    def summary(self) -> str:
        again = "; ".join(
            f"{how}: {len(waits)} ran again, after {max(waits):.2f} s at most"
            for how, waits in self.rerun_delays.items()
        )
        ran = f"{self.executions} executions ({self.extra} extra, {self.in_flight} were in flight)"
        return (
            f"{self.tasks} tasks, {ran}, {self.stale} stale answers refused; {again or 'nobody was killed with work'}"
        )


def read_history(folder: Path) -> list[Event]:
    """All events of a folder of histories in the order of time; a line cut off by a kill is left out."""
    events = []
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_bytes().split(b"\n"):
            try:
                events.append(json.loads(line))
            except ValueError:
                continue
    return sorted(events, key=lambda event: event["at"])


def check_history(
    events: Sequence[Event],
    tasks: Iterable[int],
    records: Iterable[int],
    *,
    limits: Limits = Limits(),
    every_task_done: bool = True,
) -> CheckResult:
    """tasks: the ids that were added. records: the task of every record that is in the queue at the end."""
    wanted = set(tasks)
    verdict = CheckResult(len(wanted))
    verdict.violations += _lost_or_duplicated(events, wanted, Counter(records), every_task_done)
    verdict.violations += _leases(events)
    verdict.violations += _fencing(events)
    verdict.violations += _executions(events, wanted, verdict)
    verdict.violations += _rerun_delays(events, verdict, limits)
    return verdict


def _settled(events: Sequence[Event]) -> Iterable[tuple[Event, int, int, str, str]]:
    for event in events:
        if event["what"] == "settle":
            for task, lease, result, answer in event["outcomes"]:
                yield event, task, lease, result, answer


def _lost_or_duplicated(
    events: Sequence[Event], wanted: set[int], records: Counter[int], every_task_done: bool
) -> list[str]:
    violations = []
    if every_task_done:
        missing = wanted - set(records)
        violations += [f"lost: task {task} has no record" for task in sorted(missing)[:5]]
        if len(missing) > 5:
            violations.append(f"lost: {len(missing)} tasks in all")
    violations += [f"duplicated: task {task} has {n} records" for task, n in records.items() if n > 1][:5]
    violations += [f"a record of task {task}, which nobody added" for task in sorted(set(records) - wanted)[:5]]
    ended: dict[int, set[int]] = defaultdict(set)
    for _, task, lease, result, answer in _settled(events):
        if answer in ("ok", "already") and result in FINAL:
            ended[task].add(lease)
    violations += [f"task {task} was ended under {len(held)} leases" for task, held in ended.items() if len(held) > 1][
        :5
    ]
    return violations


def _claims(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event["what"] == "claim" and event["tasks"]]


def _leases(events: Sequence[Event]) -> list[str]:
    """Numbers only grow: of two claims one after the other, the later has the larger number."""
    violations: list[str] = []
    requests: dict[int, str] = {}
    largest, largest_at = 0, 0.0
    for claim in sorted(_claims(events), key=lambda event: event["began"]):
        lease = claim["lease"]
        if requests.setdefault(lease, claim["request"]) != claim["request"]:
            violations.append(f"lease {lease} was given to two claims")
    ended = sorted(_claims(events), key=lambda event: event["at"])
    begun = sorted(_claims(events), key=lambda event: event["began"])
    position, seen = 0, set[str]()
    for claim in begun:
        while position < len(ended) and ended[position]["at"] < claim["began"]:
            if ended[position]["lease"] > largest:
                largest, largest_at = ended[position]["lease"], ended[position]["at"]
            position += 1
        if claim["request"] in seen:  # the answer to a claim that was asked before
            continue
        seen.add(claim["request"])
        if claim["lease"] <= largest:
            violations.append(f"lease {claim['lease']} came after {largest}, which was given out at {largest_at:.3f}")
    return violations[:5]


def _fencing(events: Sequence[Event]) -> list[str]:
    """Nothing is accepted under a lease when the task had been given to another before."""
    given: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for claim in _claims(events):
        for task in claim["tasks"]:
            given[task].append((claim["at"], claim["lease"]))
    violations = []
    for event, task, lease, result, answer in _settled(events):
        if answer != "ok":
            continue
        later = [number for at, number in given[task] if number > lease and at < event["began"]]
        if later:
            violations.append(f"stale accepted: task {task}, {result} under {lease}, though {max(later)} had it")
        if lease not in (number for _, number in given[task]):
            violations.append(f"task {task} was settled under {lease}, which no claim answered")
    return violations[:5]


def _executions(events: Sequence[Event], wanted: set[int], verdict: CheckResult) -> list[str]:
    """Only what was in flight in a worker that was killed or stopped may run more than once."""
    starts = [event for event in events if event["what"] == "start"]
    verdict.executions = len(starts)
    verdict.stale = sum(answer == "stale" for *_, answer in _settled(events))
    violations = [f"task {task} was never executed" for task in sorted(wanted - {e["task"] for e in starts})[:3]]
    for kill in events:
        if kill["what"] == "kill":
            kill["held"] = _held_at(events, kill)
            verdict.in_flight += len(kill["held"])
    if verdict.extra > verdict.in_flight:
        violations.append(
            f"{verdict.extra} extra executions, but only {verdict.in_flight} tasks were in flight at kills"
        )
    return violations


def _held_at(events: Sequence[Event], kill: Event) -> set[int]:
    """Tasks that its victims had started when it happened, and neither settled nor lost to others."""
    victims, held = set(kill["workers"]), dict[int, int]()
    for event in events:
        if event["at"] > kill["at"] + KILL_SLACK:
            break
        ours = event.get("worker") in victims
        if event["what"] == "start" and ours:
            held[event["task"]] = event["lease"]
        elif event["what"] == "start":
            held.pop(event["task"], None)
        elif event["what"] == "settle" and ours:
            for task, lease, result, answer in event["outcomes"]:
                if held.get(task) == lease and result != "part" and answer != "away":
                    del held[task]
    return set(held)


def _rerun_delays(events: Sequence[Event], verdict: CheckResult, limits: Limits) -> list[str]:
    """How long what a killed worker was executing waited until it ran again."""
    violations: list[str] = []
    starts: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event["what"] == "start":
            starts[event["task"]].append(event)
    settled: dict[int, list[float]] = defaultdict(list)
    for event, task, _, result, answer in _settled(events):
        if answer == "ok" and result != "part":
            settled[task].append(event["began"])
    for kill in events:
        if kill["what"] != "kill" or kill["how"] not in ("child", "machine"):
            continue
        limit = limits.child if kill["how"] == "child" else limits.machine
        for task in kill.get("held", ()):
            again = min((start["at"] for start in starts[task] if start["at"] > kill["at"]), default=None)
            if again is None:
                continue  # its settle had gone through, though the worker did not live to write that down
            waited = again - kill["at"]
            verdict.rerun_delays[kill["how"]].append(waited)
            if waited > limit:
                violations.append(f"task {task} ran again only {waited:.2f} s after its {kill['how']} was killed")
    return violations[:5]
