"""What must hold after a crawl, whatever happened in between."""

from __future__ import annotations

from collections import Counter

from wait import FOREVER, wait_until

from deploy.api import Api


def slow_pages(host: str, number: int, milliseconds: int = 200) -> list[str]:
    """Pages that take a while each: some are always in progress when a worker dies."""
    return [f"http://{host}:8808/slow/{milliseconds}?n={n}" for n in range(number)]


def check_account(api: Api, run: str, number: int) -> str:
    """The run finishes with every URL done, and one record of each; its figures."""
    # Of two servers one may be a second behind the other.
    status = wait_until(lambda: (it := api.status(run))["state"] == "finished" and it, FOREVER, every=0.5)
    assert (status["seen"], status["done"], status["dead"], status["open"]) == (number, number, 0, 0), status
    records = Counter(record["url"] for record in api.records(run))
    assert len(records) == number
    assert [url for url, times in records.items() if times > 1] == []
    return f"{len(records)} of {number} pages, none doubled"
