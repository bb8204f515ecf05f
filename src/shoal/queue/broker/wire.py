"""What workers and the relay say to each other: verbs and their answers, and the tasks that are carried."""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.core.task import LeasedTask

OK, REFUSED = "ok", "refused"  # the type of an answer
# Beside the verbs of the contract. UPLOAD: to which queue does a request go that comes in parts?
HELLO, CHECK, TASK_QUEUES, UPLOAD = "hello", "check_leases", "task_queues", "upload"
REQUEST_SECONDS = 10.0  # for which a request counts; whoever asked asks again then
MAX_CHECKED = 2_000  # tasks of one check
MAX_SERVES = 10_000
MAX_REPORT = 1_000_000  # bytes of what a worker says it holds
MAX_QUEUES = 2_000


class Refusal(msgspec.Struct, frozen=True):
    """Why a verb was not done: a class of shoal.errors, and its words."""

    error: str
    detail: str
    hint: str = ""


class LeaseCheck(msgspec.Struct, frozen=True):
    """Are these still to be done? Asked of messages that were delivered before."""

    worker: str
    tasks: tuple[tuple[int, int], ...]  # task, lease


# wait: another worker has it; gone: it was settled or given to another; go: do it
LeaseAnswer = Literal["go", "wait", "gone"]


class TaskQueuesQuestion(msgspec.Struct, frozen=True):
    """Where is work for a worker that serves these names?"""

    serves: tuple[str, ...] | None = None


class TaskQueue(msgspec.Struct, frozen=True):
    name: str
    scraper: str
    auto: bool = False  # acknowledged when a worker begins it


class HoldingReport(msgspec.Struct, frozen=True):
    """What a worker has been handed out and has not settled, and what it was delivered and has not begun."""

    worker: str
    tasks: tuple[int, ...]
    waiting: tuple[int, ...] = ()


decode_task = msgspec.msgpack.Decoder(LeasedTask).decode
encode = msgspec.msgpack.Encoder().encode
decode_refusal = msgspec.msgpack.Decoder(Refusal).decode
decode_check = msgspec.msgpack.Decoder(LeaseCheck).decode
decode_check_answer = msgspec.msgpack.Decoder(list[LeaseAnswer]).decode
decode_question = msgspec.msgpack.Decoder(TaskQueuesQuestion).decode
decode_queues = msgspec.msgpack.Decoder(list[TaskQueue]).decode
decode_report = msgspec.msgpack.Decoder(HoldingReport).decode
