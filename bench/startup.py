"""How long people wait for `import shoal` and for `shoal --help`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import harness

IMPORT = "import time; start = time.perf_counter(); import shoal; print(time.perf_counter() - start)"


def importing() -> float:
    python = str(harness.ROOT / ".venv" / "bin" / "python")
    done = subprocess.run([python, "-c", IMPORT], capture_output=True, text=True, check=True, cwd=harness.BENCH)
    return float(done.stdout)


def wall(*argv: str) -> float:
    start = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, cwd=harness.BENCH)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()
    python = str(harness.ROOT / ".venv" / "bin" / "python")
    jobs = {
        "import shoal, inside Python": (importing, 0.150),
        "python -c 'import shoal'": (lambda: wall(python, "-c", "import shoal"), None),
        "shoal --help": (lambda: wall(str(harness.SHOAL), "--help"), 0.300),
        "python -c pass, to compare": (lambda: wall(python, "-c", "pass"), None),
    }
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(args.repeats):
        for name, (job, _) in jobs.items():
            times[name].append(job())
    rows = [
        [name, harness.spread([t * 1000 for t in times[name]], ".0f"), f"< {target * 1000:.0f}" if target else ""]
        for name, (_, target) in jobs.items()
    ]
    text = harness.table(["start-up", "ms, median (lowest–highest)", "target"], rows)
    print(text)
    harness.save("startup", {"machine": harness.machine(), "times": times}, text)
    late = [n for n, (_, target) in jobs.items() if target and harness.quantile(times[n], 0.5) > target]
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
