"""Resources: what a machine or container has is read as it is, and what it can take follows from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.core.resources import MachineResources, ResourcePolicy, judge_resources, resource_pressure
from shoal.files.machine import MachineReader

GB = 10**9
MEMINFO = "MemTotal:       16000000 kB\nMemFree:  100 kB\nMemAvailable:   12000000 kB\n"
STAT = "cpu  100 0 100 800 0 0 0 0 0 0\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def reader(root: Path, cgroup: str, groups: dict[str, str]) -> MachineReader:
    proc = tree(root / "proc", {"meminfo": MEMINFO, "stat": STAT, "self/cgroup": cgroup})
    return MachineReader(root, proc=proc, cgroups=tree(root / "cgroup", groups))


def test_without_limits_the_machine_itself_counts(tmp_path: Path) -> None:
    have = reader(tmp_path, "0::/\n", {"cgroup.controllers": "memory"}).read()
    assert (have.memory_total, have.memory_used) == (16_000_000 * 1024, 4_000_000 * 1024)
    assert (have.limited_by, have.cores) == ("", len(os.sched_getaffinity(0)))
    assert 0 < have.disk_free < have.disk_total


V2 = {
    "cgroup.controllers": "cpu memory",
    "pod/limit/memory.max": "max",
    "pod/limit/memory.current": "1",
    "pod/memory.max": "2000000000",  # an outer group has the limit
    "pod/memory.current": "1500000000",
    "pod/memory.stat": "anon 1\ninactive_file 500000000\n",
    "pod/limit/cpu.max": "50000 100000",
    "pod/limit/cpu.stat": "usage_usec 1000000\n",
}
V1 = {
    "memory/docker/abc/memory.limit_in_bytes": "2000000000",
    "memory/docker/abc/memory.usage_in_bytes": "1500000000",
    "memory/docker/abc/memory.stat": "inactive_file 1\ntotal_inactive_file 500000000\n",
    "memory/memory.limit_in_bytes": "9223372036854771712",  # none
    "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "50000",
    "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
    "cpu,cpuacct/docker/abc/cpuacct.usage": "1000000000",
}


@pytest.mark.parametrize(
    ("cgroup", "groups", "version"),
    [
        ("0::/pod/limit\n", V2, "cgroup v2"),
        ("5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/docker/abc\n", V1, "cgroup v1"),
    ],
)
def test_in_a_container_its_control_group_counts(
    tmp_path: Path, cgroup: str, groups: dict[str, str], version: str
) -> None:
    made = reader(tmp_path, cgroup, groups)
    have = made.read()
    assert (have.memory_total, have.memory_used, have.limited_by) == (2 * GB, GB, version)
    assert have.cores == 0.5


@pytest.mark.parametrize(
    ("machine", "group", "limited_by"),
    [
        (25, 50, "cgroup v2"),
        (60, 10, "cgroup v2"),  # a fuller machine has more left than a small container
        (85, 50, "cgroup v2"),
        (92, 50, ""),  # it is short: what the container may have does not help
        (92, 95, "cgroup v2"),
        (96, 95, ""),
    ],
)
def test_the_memory_that_counts_is_what_ends_first(tmp_path: Path, machine: int, group: int, limited_by: str) -> None:
    groups = {"cgroup.controllers": "memory", "pod/memory.max": f"{GB}", "pod/memory.current": f"{group * GB // 100}"}
    made = reader(tmp_path, "0::/pod\n", groups)
    free = 16_000_000 * (100 - machine) // 100
    tree(tmp_path / "proc", {"meminfo": f"MemTotal: 16000000 kB\nMemAvailable: {free} kB\n"})
    have = made.read()
    assert have.limited_by == limited_by
    room = 0 if max(machine, group) >= 90 else (90 - group) * GB // 100 // (512 * 2**20)
    policy = ResourcePolicy(cpu_high=1, disk_reserve=1)  # however busy and full this machine is
    assert judge_resources(have, policy, workers=0).can_add == room


def test_a_container_that_sees_its_own_group_as_the_root_is_understood(tmp_path: Path) -> None:
    # Version 1 without a namespace of its own: the path is that of the host, and only the root can be seen.
    groups = {"memory/memory.limit_in_bytes": "1000000000", "memory/memory.usage_in_bytes": "990000000"}
    have = reader(tmp_path, "5:memory:/docker/0123456789abcdef\n", groups).read()
    assert (have.memory_total, have.memory_used) == (GB, 990_000_000)


def test_what_cannot_be_read_is_not_known_and_no_reason_to_stop(tmp_path: Path) -> None:
    have = MachineReader(tmp_path / "missing" / "folder", proc=tmp_path, cgroups=tmp_path).read()
    assert (have.memory_total, have.cpu) == (0, None)
    assert have.disk_total > 0  # of the folder in which it would be made
    assert resource_pressure(MachineResources(), ResourcePolicy()) == ("", "")


def test_a_real_limit_of_this_machine_is_seen_in_it() -> None:
    root = Path("/sys/fs/cgroup/memory")
    own = next(
        (line.split(":")[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line), ""
    )
    group = root / own.strip("/") / f"shoal-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text("300000000")
    except OSError:
        pytest.skip("no control group of version 1 can be made here: it takes root and such a system")
    code = (
        "import os, pathlib, sys\n"
        "pathlib.Path(sys.argv[1], 'cgroup.procs').write_text(str(os.getpid()))\n"
        "from shoal.files.machine import MachineReader\n"
        "held = bytearray(100_000_000); held[::4096] = b'x' * len(held[::4096])\n"
        "have = MachineReader().read()\n"
        "print(have.limited_by, have.memory_total, have.memory_used > 100_000_000)\n"
    )
    try:
        done = subprocess.run([sys.executable, "-c", code, str(group)], capture_output=True, text=True, check=False)
        assert done.stdout.split() == ["cgroup", "v1", str(300_000_000 // 4096 * 4096), "True"], done.stderr
    finally:
        group.rmdir()


def test_the_cpu_is_as_busy_as_it_was_between_two_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("shoal.files.machine.time.monotonic", lambda: now)
    made = reader(tmp_path, "0::/pod/limit\n", V2)
    assert made.read().cpu is None
    now = 102.0
    (tmp_path / "cgroup/pod/limit/cpu.stat").write_text("usage_usec 1500000\n")
    assert made.read().cpu == 0.5  # half a second of CPU in two seconds, with half a core


HAVE = MachineResources(
    cores=4, cpu=0.2, load=1.0, memory_total=8 * GB, memory_used=2 * GB, disk_total=8 * GB, disk_free=GB
)


@pytest.mark.parametrize(
    ("change", "workers", "can_add", "limit"),
    [
        ({}, 2, 6, "4 cores, 2 workers each"),
        ({}, 8, 0, "4 cores"),
        ({"memory_used": 6 * GB}, 2, 2, "1.2 GB of memory to spare, 537 MB per worker"),
        ({"memory_total": GB, "memory_used": GB, "limited_by": "cgroup v2"}, 2, 0, "of the cgroup v2"),
        ({"cpu": 0.95}, 2, 0, "the CPU is 95% busy"),
        ({"load": 9.0}, 2, 0, "the load is 9.0 on 4 cores"),
        ({"disk_free": 1_000}, 2, 0, "1 KB of disk are free"),
        ({"files_limit": 16}, 2, 0, "may open 16 files"),
    ],
)
def test_what_is_short_first_limits_how_many_workers_fit(
    change: dict[str, object], workers: int, can_add: int, limit: str
) -> None:
    have = MachineResources(**{name: getattr(HAVE, name) for name in HAVE.__struct_fields__} | change)
    verdict = judge_resources(have, ResourcePolicy(), workers=workers)
    assert verdict.can_add == can_add
    assert limit in verdict.limit


@pytest.mark.parametrize("wrong", [{"cores": float("nan")}, {"cores": float("inf")}, {"memory_total": -1}])
def test_figures_that_no_machine_has_are_not_believed(wrong: dict[str, float]) -> None:
    assert HAVE.is_plausible
    assert not MachineResources(**{name: getattr(HAVE, name) for name in HAVE.__struct_fields__} | wrong).is_plausible


def test_the_best_number_is_what_the_pending_work_needs_and_the_machine_suits() -> None:
    assert judge_resources(HAVE, ResourcePolicy(), workers=0, pending=100, per_worker=32).best == 4
    assert judge_resources(HAVE, ResourcePolicy(), workers=0, pending=10_000, per_worker=32).best == 8
    assert judge_resources(HAVE, ResourcePolicy(), workers=0, pending=0).best == 0


@pytest.mark.parametrize(
    ("change", "pressure"),
    [
        ({}, ""),
        ({"memory_used": 7_300_000_000}, "slow"),
        ({"memory_used": 7_700_000_000}, "stop"),
        ({"disk_free": 300_000_000}, "slow"),
        ({"disk_free": 100_000_000}, "stop"),
        ({"disk_total": 64_000_000, "disk_free": 10_000_000}, ""),  # a small disk needs less
        ({"disk_total": 64_000_000, "disk_free": 3_000_000}, "stop"),
        ({"files_limit": 100, "files_open": 90}, "slow"),
        ({"files_limit": 100, "files_open": 96}, "stop"),
        ({"disk_free": 300_000_000, "memory_used": 7_700_000_000}, "stop"),
    ],
)
def test_workers_claim_less_and_then_nothing_before_something_runs_out(
    change: dict[str, object], pressure: str
) -> None:
    have = MachineResources(**{name: getattr(HAVE, name) for name in HAVE.__struct_fields__} | change)
    assert resource_pressure(have, ResourcePolicy())[0] == pressure
