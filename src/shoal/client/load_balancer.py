"""LoadBalancer: pushes tasks straight to workers, and loses nothing where they cannot take them.

A pushed task is added to the queue and leased to its worker in one step, so the queue has it from the first moment on:
the balancer may end at any time, and the tasks of a worker that dies, freezes or is cut off go to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Self

import msgspec

from shoal.client.balanced_worker import BalancedWorker
from shoal.client.client import Client
from shoal.client.worker_connection import WorkerConnection, WorkerUnreachable
from shoal.config.queue_address import QueueAddress, settings_for
from shoal.control.worker_ports import find_ports
from shoal.core.balancing import STRATEGIES, Strategy, choose
from shoal.core.typed_task import Task
from shoal.errors import ActionRequired, UsageError
from shoal.web.push.port import check_token
from shoal.web.push.pusher import Pusher
from shoal.web.push.request import PushAnswer, PushRequest
from shoal.worker.pool.push_targets import PushTargets

FRESH_SECONDS = 0.25  # figures so young need not be asked for again before a worker is chosen
NO_WORKER_HINT = "start one: shoal worker FILE.py --accept 9470; or give the balancer the queue, and tasks wait there"


class LoadBalancer:
    """Pushes tasks to workers that were registered, or that the queue knows of: `async with LoadBalancer(…)`.

    Without a URL it is the queue of the settings, if they name one; without any queue, workers are those registered
    here, and what none of them can take at once waits in theirs. strategy: "least_loaded" goes by what workers say they
    have in flight and by their measured pace; "round_robin"; "random". health_check_interval: seconds between two
    looks at every worker, and at the registry. token: that of the workers, SHOAL_ACCEPT_TOKEN unless given.
    """

    def __init__(
        self,
        url: QueueAddress | None = None,
        *,
        strategy: Strategy = "least_loaded",
        health_check_interval: float = 10.0,
        token: str = "",
        discover: bool = True,
        **settings: Any,
    ) -> None:
        if strategy not in STRATEGIES:
            raise UsageError(f"strategy {strategy!r:.100} is not known", hint=f"there are: {', '.join(STRATEGIES)}")
        is_number = isinstance(health_check_interval, int | float)
        if not is_number or not 0.05 <= health_check_interval <= 86_400:
            raise UsageError(
                f"health_check_interval {health_check_interval!r:.100} is not understood", hint="seconds: 10"
            )
        chosen = settings_for(url, settings)
        self._token = token or chosen.accept_token
        check_token(self._token, "a LoadBalancer")
        self._client = Client(chosen) if url is not None or "queue" in chosen.sources else None
        self._strategy = strategy
        self._interval = health_check_interval
        self._discover = discover
        self._random = random.Random()
        self._workers: dict[str, BalancedWorker] = {}
        self._adder: Pusher | None = None
        self._turn = 0
        self._checking: asyncio.Task[None] | None = None
        self._looking: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        if self._client is not None:
            await self._client.open()
        await self.check_workers()
        self._checking = asyncio.create_task(self._keep_checking(), name="health-checks")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._checking is not None:
            self._checking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._checking
            self._checking = None
        self._adder = None
        if self._client is not None:
            await self._client.close()

    # the workers

    def register_worker(self, name: str, url: str) -> BalancedWorker:
        """Have tasks pushed to the worker at a URL; the same name again is another URL for it."""
        worker = self._worker(name, url)
        for known in self.workers:
            if known.is_found and known.url == worker.url:  # one worker under two names would get twice its share
                del self._workers[known.name]
        self._workers[name] = worker
        return worker

    def unregister_worker(self, name: str) -> bool:
        """Push nothing more to it; what it has it finishes. False: there is none of that name."""
        return self._workers.pop(name, None) is not None

    @property
    def workers(self) -> list[BalancedWorker]:
        """All of them, also those that do not answer."""
        return list(self._workers.values())

    @property
    def _healthy(self) -> list[BalancedWorker]:
        return [worker for worker in self.workers if worker.is_healthy]

    async def get_worker(self) -> BalancedWorker:
        """The one that the next task should go to, by the strategy; a full one only where all are."""
        found = next(await self._candidates(), None) or next(self._in_order(self._healthy, None), None)
        if found is None:
            why = next((f": {worker.error}" for worker in self.workers if worker.error), "")
            raise ActionRequired(f"none of {len(self._workers)} workers takes tasks{why}", hint=NO_WORKER_HINT)
        return found

    async def check_workers(self) -> None:
        """Look at the registry and at every worker now."""
        await self._find_workers()
        await asyncio.gather(*(worker.check() for worker in self.workers))

    async def _keep_checking(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            with contextlib.suppress(ActionRequired):  # workers are known, whatever the queue has
                await self._find_workers()
            await asyncio.gather(*(worker.check() for worker in self.workers))

    async def _find_workers(self) -> None:
        if self._client is None or not self._discover:
            return
        ports = await find_ports(self._client.queue, self._token)
        taken = {worker.url for worker in self.workers if not worker.is_found}
        for name, worker in list(self._workers.items()):
            if worker.is_found and ports.get(name) != worker.url:
                del self._workers[name]
        for name, url in ports.items():
            if name not in self._workers and url not in taken:
                with contextlib.suppress(UsageError):  # of a URL that is none
                    self._workers[name] = self._worker(name, url, found=True)

    def _worker(self, name: str, url: str, *, found: bool = False) -> BalancedWorker:
        return BalancedWorker(name, WorkerConnection(url, self._token), self._submit_to, found=found)

    # tasks

    async def submit(self, task: Task | str, *, run: str = "", priority: int = 0) -> int:
        """Push a task, or the URL of a page of a run, to a worker and return its id.

        The first that takes it has it; where none does, it waits in the queue, and any worker will take it there.
        """
        return await self._submit_to(None, task, run, priority)

    async def _submit_to(self, first: BalancedWorker | None, task: Task | str, run: str, priority: int) -> int:
        request, tried = _request(task, run, priority), list[str]()
        id = await _offer(await self._candidates(request, first), request, tried)
        if id is not None:
            return id
        request = msgspec.structs.replace(request, anyway=True)
        if self._client is not None:
            return (await self._add_to_queue(self._client, request)).id
        # A worker that can be reached puts it into its queue, where it waits for any.
        id = await _offer(iter(self._healthy), request, tried)
        if id is not None:
            return id
        why = f" ({'; '.join(tried[:3])})" if tried else ""
        raise ActionRequired(f"no worker takes the task{why}", hint=f"submit it again later, or {NO_WORKER_HINT}")

    async def _add_to_queue(self, client: Client, request: PushRequest) -> PushAnswer:
        """As a worker does that takes nothing itself."""
        if self._adder is None:
            nobody = PushTargets(lambda: ())
            self._adder = Pusher(
                client.queue,
                client.settings,
                nobody,
                serves=lambda name: False,
                can_run=lambda run: False,
                is_stopping=lambda: False,
            )
        return await self._adder.push(request)

    async def submit_many(self, tasks: Iterable[Task]) -> list[int]:
        """Push tasks one after the other; their ids in order."""
        return [await self.submit(task) for task in tasks]

    async def _candidates(
        self, request: PushRequest | None = None, first: BalancedWorker | None = None
    ) -> Iterator[BalancedWorker]:
        """Workers in the order in which they are asked."""
        await self._refresh()
        left = [worker for worker in self._healthy if worker.load.has_room]
        if request is not None:
            left = [worker for worker in left if worker.serves(request)]
        return self._in_order(left, first)

    def _in_order(self, left: list[BalancedWorker], first: BalancedWorker | None) -> Iterator[BalancedWorker]:
        if first is not None:
            yield first
            left = [worker for worker in left if worker is not first]
        while left:
            chosen = choose(self._strategy, left, lambda worker: worker.load, self._turn, self._random)
            self._turn += 1
            left.remove(chosen)
            yield chosen

    async def _refresh(self) -> None:
        """Ask those that are new, or answered the last time, how busy they are; all callers share one look."""
        old = [worker for worker in self.workers if worker.age > FRESH_SECONDS and (worker.is_healthy or worker.is_new)]
        if self._looking is None and old:
            self._looking = asyncio.ensure_future(_check_all(old))
            self._looking.add_done_callback(self._end_look)
        if self._looking is not None:
            await asyncio.shield(self._looking)

    def _end_look(self, _: object) -> None:
        self._looking = None


async def _offer(workers: Iterator[BalancedWorker], request: PushRequest, tried: list[str]) -> int | None:
    """The id of a task that one of them took; None: none did, and `tried` has the reasons."""
    for worker in workers:
        try:
            answer = await worker.push(request)
        except WorkerUnreachable as error:
            tried.append(str(error))
            continue
        if not answer.refused:
            return answer.id
        tried.append(f"{worker.name}: {answer.error or answer.refused}")
    return None


async def _check_all(workers: list[BalancedWorker]) -> None:
    await asyncio.gather(*(worker.check() for worker in workers))


def _request(task: Task | str, run: str, priority: int) -> PushRequest:
    if isinstance(task, Task):
        fields = {
            name: value
            for name in Task.__struct_fields__
            if (value := getattr(task, name)) != _DEFAULTS.get(name, ...) or name == "type"
        }
        return PushRequest(id=uuid.uuid4().hex, task=fields)
    if not isinstance(task, str):
        raise UsageError(f"{task!r:.100} is not a task", hint="shoal.Task(type=…, payload=…), or a URL and run=…")
    if not run:
        raise UsageError("a URL needs the run it is for", hint='submit("https://…", run="20260215_books_x7q")')
    return PushRequest(url=task, run=run, priority=priority)


_DEFAULTS = {name: getattr(Task(type="any"), name) for name in Task.__struct_fields__}
