"""Where the design bends: fleets of 1 to 1,000 workers, a billion URLs, shards, outages and an autoscaler, simulated.

Prints the tables of docs/internet-scale.md and draws its charts (docs/images/simulation-*.svg). Takes half a minute.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import harness
from chart import Axis, Point, chart
from engine import Simulation
from queue_load import cores_of, most_requests, server_load
from scenario import Outage, Scenario

from shoal.core.autoscale import ScaleLimits

IMAGES = harness.ROOT / "docs" / "images"
FLEETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
BILLION = {"urls": 10**9, "hosts": 10**6, "largest_host": 10**5}
DAY = 86_400.0
START = 360.0  # where the chart of a long crawl begins: its axis has no 0


def draw(name: str, text: str) -> None:
    (IMAGES / f"simulation-{name}.svg").write_text(text)


def scale() -> str:
    """Pages per second while all hosts have work, by workers and shards."""
    lines: list[tuple[str, list[Point]]] = []
    rows = []
    for queue, shards in (("redis", 1), ("redis", 4), ("redis", 16), ("postgres", 1)):
        points: list[Point] = []
        for workers in FLEETS:
            case = Scenario(**BILLION, queue=queue, shards=shards, workers=workers, concurrency=64, max_seconds=1.0)
            points.append((workers, max(moment.rate for moment in Simulation(case).run().moments)))
        label = f"{queue}, {shards} server{'s' * (shards > 1)}"
        lines.append((label, points))
        rows.append([label, *(f"{rate:,.0f}" for workers, rate in points if workers in (1, 10, 100, 1_000))])
    title = "Requests per second by workers (64 pages at once each, 0.5 s per response)"
    draw("scale", chart(title, Axis("workers", is_log=True), Axis("requests/s", is_log=True), lines))
    return harness.table(["requests/s with workers", "1", "10", "100", "1,000"], rows)


def batching() -> str:
    """What one server can do, by how much each worker does at once."""
    rows = []
    for queue in ("redis", "postgres"):
        for concurrency in (4, 16, 64, 256):
            case = Scenario(**BILLION, queue=queue, concurrency=concurrency)
            low, high = 1.0, 1e6
            for _ in range(60):
                workers = (low * high) ** 0.5
                able = most_requests(case, workers, 1e6, workers)
                low, high = (workers, high) if able > workers * case.worker_rate else (low, workers)
            load = server_load(case, low * case.worker_rate, low, 1e6, is_paced=False, fleet=low)
            per_page = load.cpu / (low * case.worker_rate) * 1000
            rows.append([
                queue, str(concurrency), f"{case.worker_rate:,.0f}", f"{low:,.0f}",
                f"{low * case.worker_rate:,.0f}", f"{per_page:.3f} ms",
            ])  # fmt: skip
    head = ["queue", "--concurrency", "pages/s of a worker", "workers that fill one server"]
    return harness.table([*head, "pages/s then", "server CPU/page"], rows)


def idle_fleet() -> str:
    """What workers that wait for hosts cost the server."""
    rows = []
    for workers in (10, 100, 1_000):
        case = Scenario(**BILLION, workers=workers)
        load = server_load(case, 1_000.0, workers, 1_000, is_paced=True, fleet=workers)
        rows.append([f"{workers:,}", f"{load.claims:,.0f}", f"{load.duties:.0%}", f"{load.share(cores_of(case)):.0%}"])
    return harness.table(["workers for 1,000 hosts at 1/s", "claims/s", "duties", "of one Redis"], rows)


def billion() -> str:
    """A billion URLs of a million hosts, with fleets and host sizes."""
    lines: list[tuple[str, list[Point]]] = []
    rows = []
    cases = (
        ("100 workers, 1 server", {"workers": 100}),
        ("400 workers, 4 servers", {"workers": 400, "shards": 4}),
        ("1,000 workers, 16 servers", {"workers": 1_000, "shards": 16}),
        ("the same, no robots.txt", {"workers": 1_000, "shards": 16, "robots": False}),
        ("Zipf (largest 69 M)", {"workers": 1_000, "shards": 16, "largest_host": None}),
    )
    for name, changes in cases:
        done = Simulation(Scenario(**BILLION | {"concurrency": 64} | changes)).run()
        total = done.moments[0].left
        nine = next(moment.at for moment in done.moments if moment.left <= 0.1 * total)
        stairs = [(max(at, START) / 3600, rate) for one in steps(done) for at, rate in one]
        lines.append((name, [point for point in stairs if point[1] > 0]))
        busiest = max(moment.busiest for moment in done.moments)
        rows.append([
            name, f"{done.seconds / DAY:,.1f} d", f"{nine / DAY:,.1f} d", f"{done.rate:,.0f}",
            f"{done.done / 1e9:.2f} G", f"{busiest:.0%}",
        ])  # fmt: skip
    draw(
        "billion",
        chart(
            "A billion URLs of a million hosts at 1 page/s each: requests per second over time",
            Axis("hours", is_log=True),
            Axis("requests/s", is_log=True),
            lines,
        ),
    )
    head = ["10⁹ URLs, 10⁶ hosts", "time", "90 %", "requests/s", "requests", "busiest server"]
    return harness.table(head, rows)


def failures() -> str:
    """A shard that is away, and workers that die."""
    usual = {"urls": 5_000_000, "hosts": 50_000, "largest_host": 200, "workers": 200, "shards": 4, "concurrency": 64}
    calm = Simulation(Scenario(**usual)).run()
    rows = [["nothing happens", f"{calm.seconds:,.0f} s", "", "", ""]]
    lines = []
    for name, changes in (
        ("a shard is away for 30 s", {"outages": (Outage(60.0, 1, 30.0),)}),
        ("… for 10 minutes", {"outages": (Outage(60.0, 1, 600.0),)}),
        ("each worker dies every 10 min", {"worker_mtbf": 600.0}),
    ):
        done = Simulation(Scenario(**usual | changes)).run()
        others = max(at for shard, at in done.ended.items() if shard != 1)
        of_others = max(at for shard, at in calm.ended.items() if shard != 1)
        rows.append([
            name, f"{done.seconds:,.0f} s", f"{done.ended[1] - calm.ended[1]:+,.0f} s", f"{others - of_others:+,.0f} s",
            f"{done.repeated:,.0f}",
        ])  # fmt: skip
        lines.append((name, [p for one in steps(done) for p in one if p[0] <= 1_200]))
    draw("failures", chart("Requests per second while things fail", Axis("seconds"), Axis("requests/s"), lines))
    head = ["200 workers, 4 shards, 5 million URLs", "time", "the shard's hosts", "other hosts", "fetched twice"]
    return harness.table(head, rows)


def steps(done: Simulation) -> list[tuple[Point, Point]]:
    """The rate as stairs: it is constant between two events."""
    pairs = zip(done.moments, done.moments[1:], strict=False)
    return [((one.at, one.rate), (next_.at, one.rate)) for one, next_ in pairs]


def autoscaled() -> str:
    """The real autoscaler on a crawl whose hosts run out of work."""
    usual = {"urls": 10**8, "hosts": 10**6, "largest_host": 10_000, "shards": 4, "concurrency": 64}
    rows = []
    lines = []
    for name, changes in (
        ("always 200 workers", {"workers": 200}),
        ("0 to 200, autoscaled", {"workers": 1, "scale": ScaleLimits(maximum=200)}),
    ):
        done = Simulation(Scenario(**usual | changes)).run()
        rows.append(
            [name, f"{done.seconds / 3600:,.1f} h", f"{done.worker_seconds / 3600:,.0f}", f"{len(done.decisions)}"]
        )
        lines.append((name, [(moment.at / 3600, float(moment.workers)) for moment in done.moments]))
    draw("autoscale", chart("Workers over time, 100 million URLs", Axis("hours"), Axis("workers"), lines))
    return harness.table(["10⁸ URLs, 10⁶ hosts, 4 servers", "time", "worker hours", "changes"], rows)


STUDIES = {
    "scale": scale,
    "batching": batching,
    "idle": idle_fleet,
    "billion": billion,
    "failures": failures,
    "autoscale": autoscaled,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(STUDIES), help="default: %(default)s")
    for name in parser.parse_args().only.split(","):
        print(f"{STUDIES[name].__doc__}\n\n{STUDIES[name]()}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
