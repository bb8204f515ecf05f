"""The model's idea of what is remembered of URLs that failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from conformance.model_state import ModelTask, micros
from shoal.core import failing
from shoal.queue.base import UrlFailures


class ModelFailing:
    clock: Callable[[], int]
    all_failures: dict[str, UrlFailures]  # the one that failed last is the last
    failure_numbers: dict[str, int]

    def count_failure(self, task: ModelTask, cause: str) -> None:
        url = task.task.url
        if failing.is_counted(url, task.task.request_options):
            had = self.all_failures.pop(url, UrlFailures())
            number = max(self.failure_numbers.values(), default=0) + 1
            self.all_failures[url] = UrlFailures(had.count + 1, failing.with_failure(had.causes, cause), self.clock())
            self.failure_numbers[url] = number

    def forget_failures_of(self, task: ModelTask) -> None:
        if failing.is_counted(task.task.url, task.task.request_options):
            self.all_failures.pop(task.task.url, None)
            self.failure_numbers.pop(task.task.url, None)

    def forget_old_failures(self) -> None:
        last = max(self.failure_numbers.values(), default=0)
        for url, about in list(self.all_failures.items()):
            is_old = about.last_at <= self.clock() - micros(failing.KEPT_SECONDS)
            if is_old or self.failure_numbers[url] <= last - failing.MAX_REMEMBERED:
                del self.all_failures[url], self.failure_numbers[url]

    async def failures(self, urls: Sequence[str]) -> list[UrlFailures]:
        return [self.all_failures.get(url, UrlFailures()) for url in urls]

    async def forget_failures(self, urls: Sequence[str] | None = None) -> int:
        gone = [url for url in list(self.all_failures) if urls is None or url in urls]
        for url in gone:
            del self.all_failures[url], self.failure_numbers[url]
        return len(gone)
