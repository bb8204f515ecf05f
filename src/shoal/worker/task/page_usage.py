"""PageUsage: what an attempt at a page has used so far, with redirects, page.fetch and what a browser loads for it."""

from __future__ import annotations

from shoal.core.capability import BROWSER
from shoal.core.cost import Cost
from shoal.core.page import Response
from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch.base import VisitUsage


class FetcherUsage:
    """By one fetcher."""

    __slots__ = ("bytes", "responses", "seconds")

    def __init__(self) -> None:
        self.responses = 0
        self.bytes = 0
        self.seconds = 0.0


class PageUsage:
    __slots__ = ("by_fetcher", "visits")

    def __init__(self) -> None:
        self.by_fetcher: dict[str, FetcherUsage] = {}
        self.visits: list[VisitUsage] = []  # by a browser; the last one may still be going on

    def add_response(self, fetcher: str, response: Response) -> None:
        used = self._by(fetcher)
        used.responses += 1
        used.bytes += response.transferred or len(response.body)
        used.seconds += response.seconds

    def add_failure(self, fetcher: str, error: FetchFailed | FetchRefused) -> None:
        """A request without a response: what has been transferred has been paid for."""
        if error.transferred:
            self._by(fetcher).bytes += error.transferred

    def begin_visit(self) -> VisitUsage:
        usage = VisitUsage()
        self.visits.append(usage)
        return usage

    def add_rendered(self, response: Response) -> None:
        """A page that a browser has opened; its bytes are those of its visit."""
        used = self._by(BROWSER)
        used.responses += 1
        used.seconds += response.seconds

    @property
    def cost(self) -> Cost:
        """So far, but for the processor's time, and as if all of it had gone by an exit."""
        size = sum(used.bytes for used in self.by_fetcher.values()) + sum(visit.bytes for visit in self.visits)
        return Cost(size, size, 0, sum(round(visit.seconds * 1e6) for visit in self.visits))

    def _by(self, fetcher: str) -> FetcherUsage:
        found = self.by_fetcher.get(fetcher)
        if found is None:
            found = self.by_fetcher[fetcher] = FetcherUsage()
        return found
