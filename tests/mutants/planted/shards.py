"""Planted changes of the sharded queue."""

from __future__ import annotations

from mutants.mutant import Mutant

TESTS = "conformance/test_shards.py"
MUTANTS = (
    Mutant(
        "a link is acknowledged although its shard does not have it",
        "queue/shards/transit.py",
        "    except QueueUnavailable:\n        return []\n    return done\n",
        "    except QueueUnavailable:\n        return done\n    return done\n",
        TESTS,
    ),
    Mutant(
        "a link that arrives twice is two tasks",
        "queue/shards/transit.py",
        "    mine = localized(tasks, run, local)\n",
        "    mine = [replace(it, digest=id(it).to_bytes(16)) for it in localized(tasks, run, local)]\n",
        TESTS,
    ),
    Mutant(
        "a lane that moves can be claimed where it was",
        "queue/shards/lane_move.py",
        "    change = LaneChange(lane, park_for=INDEFINITELY, reason=MOVED)\n",
        "    change = LaneChange(lane, reason=MOVED)\n",
        TESTS,
    ),
    Mutant(
        "a shard is given pages that another one keeps",
        "queue/shards/quota.py",
        "        return max(0, self.limit - sum(self.given.values()))\n",
        "        return self.limit\n",
        TESTS,
    ),
    Mutant(
        "pages that no shard has are kept back while one is away",
        "queue/shards/quota.py",
        "    uses = await _uses(shards, run, quota, whole=False)\n    gave = False\n",
        "    uses = await _uses(shards, run, quota)\n    gave = False\n",
        TESTS,
    ),
    Mutant(
        "a shard that hangs is waited for by every claim",
        "queue/shards/shard.py",
        "        self.away_since = self.away_since or time.monotonic()\n",
        "        self.away_since = 0.0\n",
        "conformance/test_shards_hung.py",
    ),
    Mutant(
        "an outcome that its shard could not be told is given up",
        "queue/shards/settle.py",
        '        return ["away"] * len(outcomes)\n',
        '        return ["stale"] * len(outcomes)\n',
        TESTS,
    ),
    Mutant(
        "links that were sent ahead are forgotten when their outcome cannot be told",
        "queue/shards/settle.py",
        "    held = shards.held_links.get((",
        "    held = shards.held_links.pop((",
        TESTS,
    ),
    Mutant(
        "what was in progress when a limit ended its run does not count when it goes on",
        "queue/shards/quota.py",
        "        if now.used > use.used:\n",
        "        if now.used > use.used + 1_000:\n",
        TESTS,
    ),
    Mutant(
        "the queue's own tasks are in seen-sets",
        "queue/shards/filler.py",
        "    if about.seen_set:\n",
        "    if not about.id:\n",
        TESTS,
    ),
    Mutant(
        "a run ends while something is in transit",
        "queue/shards/runs.py",
        "all(over for _, _, over in looks[0])",
        "looks[0] is not None",
        TESTS,
    ),
    Mutant(
        "what is known of a moved lane is forgotten, and fetched again",
        "queue/shards/lane_move.py",
        "        bare = [task if task.state in MOVED_WHOLE else _identity(task) for task in leaving]\n",
        "        bare = [task for task in leaving if task.state in MOVED_WHOLE]\n",
        TESTS,
    ),
    Mutant(
        "what is found while its lane is copied is dropped with what was copied",
        "queue/shards/lane_move.py",
        "        while await queue.drop(part, TaskFilter(ids=tasks), state=state):\n",
        "        while tasks and await queue.drop(part, TaskFilter(), state=state):\n",
        TESTS,
    ),
    Mutant(
        "a lane moves while something of it is in progress",
        "queue/shards/lane_move.py",
        "        if not await _in_progress(source, names):  #",
        "        if names is not None:  #",
        TESTS,
    ),
    Mutant(
        "whoever was stopped while a shard was added goes by the map of before",
        "queue/shards/settle.py",
        "    await look(shards)\n",
        "",
        TESTS,
    ),
    Mutant(
        "a shard that was away is not told of its runs while others look often",
        "queue/shards/upkeep.py",
        "    if time.monotonic() - shards.reconciled_at >= MAP_INTERVAL:\n",
        "    if await look(shards):\n",
        TESTS,
    ),
    Mutant(
        "a queue that is in use becomes a shard",
        "queue/shards/shard_set.py",
        "            await check_empty(self.shards)\n",
        "",
        TESTS,
    ),
    Mutant(
        "one store by two names is two shards",
        "queue/shards/shard_set.py",
        "            await check_apart(self.shards, self.token)\n",
        "",
        TESTS,
    ),
    Mutant(
        "a shard of another queue is added",
        "queue/shards/lane_move.py",
        "        await check_is_no_shard(candidate)\n",
        "",
        TESTS,
    ),
    Mutant("a sharded queue is added as a shard", "queue/shards/lane_move.py", "    check_new_url(url)\n", "", TESTS),
    Mutant(
        "how many hosts a new shard may get is limited by time",
        "queue/shards/lane_move.py",
        "        await _for_each(names, lambda name: _hold(source, name))\n",
        "        async with asyncio.timeout(REST_TIMEOUT):\n"
        "            await _for_each(names, lambda name: _hold(source, name))\n",
        "unit/test_shard_added.py",
    ),
    Mutant(
        "a shard that was away when the map was made never gets it",
        "queue/shards/upkeep.py",
        "        await shards.spread_map()\n",
        "        pass\n",
        TESTS,
    ),
)
