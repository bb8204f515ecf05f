"""Planted changes of scaling, resources and partitions."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "the last worker goes while retries wait",
        "core/autoscale.py",
        "if load.capacity.work.open and wanted < 1 and not load.others:",
        "if load.capacity.work.claimable and wanted < 1 and not load.others:",
        "unit/test_autoscale.py",
    ),
    Mutant(
        "a fleet that keeps up with its work is taken for idle",
        "core/autoscale.py",
        "        wanted = needed = keeping\n",
        "        pass\n",
        "unit/test_autoscale.py",
    ),
    Mutant(
        "a number that was guessed is corrected only after the cool-down",
        "core/autoscale.py",
        "grows_as_corrected = is_correction and wanted > load.current",
        "grows_as_corrected = False",
        "unit/test_autoscale.py",
    ),
    Mutant(
        "one quiet moment is enough to let workers go",
        "core/autoscale.py",
        "        if calm < limits.down_cooldown:",
        "        if calm < 0:",
        "unit/test_autoscale.py",
    ),
    Mutant(
        "a single step is taken for a trend",
        "core/autoscale.py",
        "rise = min(needed - second, second - first)",
        "rise = max(needed - second, second - first)",
        "unit/test_autoscale.py",
    ),
    Mutant(
        "workers are added though hosts allow no more",
        "core/autoscale.py",
        "if load.capacity.is_saturated and work.workers:",
        "if False:",
        "unit/test_autoscale.py",
    ),
    Mutant(
        "a driver that does nothing is asked again and again",
        "control/scaling/autoscaler.py",
        "pause = min(MAX_PAUSE, self._limits.interval * 2 ** min(tries, 10))",
        "pause = 0.0",
        "unit/test_autoscaler.py",
    ),
    Mutant(
        "a driver that overshoots counts as obedient",
        "control/scaling/autoscaler.py",
        "return count != self.before and min(self.before, self.wanted) <= count <= max(self.before, self.wanted)",
        "return count != self.before",
        "unit/test_autoscaler.py",
    ),
    Mutant(
        "a dry run changes things",
        "control/scaling/autoscaler.py",
        'if self._dry_run or not self._is_ours:\n            return ""',
        'if False:\n            return ""',
        "unit/test_autoscaler.py",
    ),
    Mutant(
        "busy pods go first",
        "control/scaling/kubernetes.py",
        "cost = str(held.get(pod.metadata.name, 0))",
        "cost = str(-held.get(pod.metadata.name, 0))",
        "acceptance/test_scaler_drivers.py",
    ),
    Mutant(
        "the cache of files counts as memory in use",
        "files/machine.py",
        'return limit, max(0, usage - _field(folder / "memory.stat", names[2]))',
        "return limit, usage",
        "unit/test_resources.py",
    ),
    Mutant(
        "an outer group's limit is not seen",
        "files/machine.py",
        "        if folder == mount:\n            return\n",
        "        return\n",
        "unit/test_resources.py",
    ),
    Mutant(
        "a worker claims on while its machine is full",
        "worker/claimer.py",
        ' or self._pressure == "stop":',
        ":",
        "unit/test_resource_guard.py",
    ),
    Mutant(
        "a weight does not count",
        "core/partition.py",
        "score = -weight / math.log(draw)",
        "score = -1 / math.log(draw)",
        "unit/test_partition.py",
    ),
    Mutant(
        "another number of parts moves everything",
        "core/partition.py",
        'salt=part.to_bytes(8, "big")',
        'salt=(part + len(weights)).to_bytes(8, "big")',
        "unit/test_partition.py",
    ),
    Mutant(
        "a host moves to the smallest part although that makes it the largest",
        "core/partition.py",
        "bisect_left(self._sizes, limit) - 1",
        "bisect_left(self._sizes, limit + 5) - 1",
        "unit/test_partition.py",
    ),
    Mutant(
        "parts that can be read only once are lost",
        "core/partition.py",
        "lists = [list(_texts(part, hint=hint)) for part in parts]",
        "parts, lists = list(parts), [list(_texts(part, hint=hint)) for part in parts]",
        "unit/test_partition.py",
    ),
    Mutant(
        "what compose run has left counts as a worker",
        "control/scaling/compose.py",
        " and not line.endswith(ONE_OFF)]",
        "]",
        "acceptance/test_scaler_drivers.py::test_compose_and_swarm_are_asked_for_replicas_and_say_how_many_run",
    ),
)
