"""Planted changes of backup and restore, and of the guard of a machine."""

from __future__ import annotations

from mutants.mutant import Mutant

_BACKUP = "acceptance/test_backup.py"
_GUARD = "unit/test_resource_guard.py"

MUTANTS = (
    Mutant(
        "writes go on while Redis is backed up",
        "queue/redis/backup.py",
        'answer = await self._db.send("CLIENT", "PAUSE", int(PAUSE * 1000), "WRITE")',
        'answer = await self._db.send("PING")',
        "acceptance/test_redis_backup.py",
    ),
    Mutant(
        "writes wait after a backup until the pause is over",
        "queue/redis/backup.py",
        'await db.send("CLIENT", "UNPAUSE")',
        'await db.send("PING")',
        "acceptance/test_redis_backup.py",
    ),
    Mutant(
        "leases from before a restore live on",
        "commands/backup.py",
        "voided = await void_leases(queue)",
        "voided = 1",
        f"{_BACKUP}::test_leases_from_before_a_restore_are_void",
    ),
    Mutant(
        "a file from before a restore is added to",
        "store/export.py",
        "            self._state.keep_former()\n",
        "",
        f"{_BACKUP}::test_a_crawl_goes_on_after_a_restore",
    ),
    Mutant(
        "a damaged backup is restored",
        "commands/backup.py",
        "    await asyncio.to_thread(_verify, folder, manifest)\n",
        "",
        f"{_BACKUP}::test_what_is_no_whole_backup_of_this_queue_is_refused",
    ),
    Mutant(
        "a queue with living workers is replaced",
        "commands/backup.py",
        "if alive := await live_workers(queue, settings):",
        "if alive := []:",
        f"{_BACKUP}::test_a_restore_does_not_touch_what_is_there_unless_told_to",
    ),
    Mutant(
        "pages that leave much in memory are as many as ever",
        "worker/resource_guard.py",
        "self.most_in_progress = max(1.0, room // self._left_by_page) if total and self._left_by_page else math.inf",
        "self.most_in_progress = math.inf",
        _GUARD,
    ),
    Mutant(
        "a process may have more than its share",
        "worker/resource_guard.py",
        "self._memory > self._share and",
        "False and",
        _GUARD,
    ),
    Mutant(
        "a worker starts afresh though others fill the machine",
        "worker/resource_guard.py",
        "is_own = is_own and growth >= MUCH_GROWTH",
        "is_own = growth >= MUCH_GROWTH",
        _GUARD,
    ),
    Mutant(
        "a scaler that stops in good order is missed",
        "control/scaling/autoscaler.py",
        "            await self._say_stopped()\n",
        "",
        "unit/test_autoscaler.py",
    ),
)
