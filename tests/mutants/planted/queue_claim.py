"""Planted changes of what is handed out, and of what comes back: repeated claims, shares, places and leases."""

from __future__ import annotations

from mutants.mutant import Mutant

_REPEAT = "conformance/test_contract_repeat.py"
_LEAD = "conformance/test_contract_lead.py"
_SETTLE = "conformance/test_contract_settle.py"
_SHARED = "conformance/test_contract_shared_lanes.py"
_IDLE = "conformance/test_contract_idle_lanes.py"
_FURTHER = "conformance/test_contract_claim.py::test_a_claim_goes_on_to_further_lanes_where_each_gives_little"
_PLAN, _LUA = "core/claim_plan.py", "queue/redis/lua/claim.lua"


def _both(wrong: str, python: tuple[str, str], lua: tuple[str, str]) -> tuple[Mutant, Mutant]:
    """The same mistake in the plan that SQLite and PostgreSQL make, and in that of Redis."""
    return (Mutant(wrong, _PLAN, *python, _LEAD), Mutant(f"{wrong} (Redis)", _LUA, *lua, _LEAD))


MUTANTS = (
    *_both(
        "a run may catch up on one task more",
        ("MAX_RUN_LEAD, MAX_LANE_LEAD = 64, 16", "MAX_RUN_LEAD, MAX_LANE_LEAD = 65, 16"),
        ("MAX_LANE_LEAD, YIELD_FRACTION = 16, 64, 16, 4", "MAX_LANE_LEAD, YIELD_FRACTION = 16, 65, 16, 4"),
    ),
    *_both(
        "a run may catch up on one task less in a lane",
        ("MAX_RUN_LEAD, MAX_LANE_LEAD = 64, 16", "MAX_RUN_LEAD, MAX_LANE_LEAD = 64, 15"),
        ("MAX_LANE_LEAD, YIELD_FRACTION = 16, 64, 16, 4", "MAX_LANE_LEAD, YIELD_FRACTION = 16, 64, 15, 4"),
    ),
    *_both(
        "a slot is left to others for a third of the spacing",
        ("YIELD_FRACTION = 4  #", "YIELD_FRACTION = 3  #"),
        ("YIELD_FRACTION = 16, 64, 16, 4", "YIELD_FRACTION = 16, 64, 16, 3"),
    ),
    *_both(
        "the heavier run catches up on no more than the lighter",
        ("int((top - MAX_LANE_LEAD) * by_id[number].weight)", "int(top * by_id[number].weight - MAX_LANE_LEAD)"),
        ("floor((most - MAX_LANE_LEAD) * by_id[number].weight)", "floor(most * by_id[number].weight - MAX_LANE_LEAD)"),
    ),
    *_both(
        "what other workers took does not limit the lead",
        ("top = max([*(one.picks for one in lane.competitors), *mine])", "top = max(mine)"),
        ("    most = max(most, rival[1])\n", ""),
    ),
    *_both(
        "a slot is left to who had as much",
        ("mine > one.picks", "mine >= one.picks"),
        ("wanted or mine > picks", "wanted or mine >= picks"),
    ),
    *_both(
        "slots to come are hoarded where others want them",
        ("if self.next_at > now:\n            return True", "if self.next_at > now:\n            return False"),
        ("if seen.at > now then\n    return true", "if seen.at > now then\n    return false"),
    ),
    *_both(
        "the moment for others lasts a microsecond too long",
        ("now < self.next_at + self.spacing // YIELD_FRACTION", "now <= self.next_at + self.spacing // YIELD_FRACTION"),
        (
            "now < seen.at + floor(seen.spacing / YIELD_FRACTION)",
            "now <= seen.at + floor(seen.spacing / YIELD_FRACTION)",
        ),
    ),
    *_both(
        "a more urgent run of other workers gets no courtesy unless it had less",
        ("one.priority != chosen.priority or mine > one.picks", "mine > one.picks"),
        ("rivals, wanted = true, true\n", "rivals, wanted = true, wanted or mine > picks\n"),
    ),
    *_both(
        "the sixteenth slot is not left to the less urgent",
        ("less = self.is_oldest_turn\n", "less = False\n"),
        ("(priority < chosen.priority) == is_oldest_turn(seen)", "(priority < chosen.priority) == false"),
    ),
    Mutant(
        "a repeated request hands out what was cancelled (SQLite)",
        "queue/sqlite/claim.py",
        "WHERE state IN (1, 3) AND lease = ? AND state = 1 ORDER BY slot",
        "WHERE state IN (1, 3) AND lease = ? ORDER BY slot",
        _REPEAT,
    ),
    Mutant(
        "a repeated request hands out a batch whose lease is over (SQLite)",
        "queue/sqlite/claim.py",
        "AND request_id = ? AND expires_at > ? ORDER",
        "AND request_id = ? AND ? > 0 ORDER",
        _REPEAT,
    ),
    Mutant(
        "a repeated request hands out what was cancelled (PostgreSQL)",
        "queue/postgres/claim.py",
        "WHERE t.lease = $1 AND NOT t.cancelled) x",
        "WHERE t.lease = $1) x",
        _REPEAT,
    ),
    Mutant(
        "a repeated request hands out a batch whose lease is over (PostgreSQL)",
        "queue/postgres/schema/0001/04_claim.sql",
        "request = p_request AND expires_at > v_now ORDER BY number DESC",
        "request = p_request ORDER BY number DESC",
        _REPEAT,
    ),
    Mutant(
        "a repeated request hands out what was cancelled (Redis)",
        "queue/redis/lua/hand_out.lua",
        "if run and tonumber(number) > run.cut then",
        "if run then",
        _REPEAT,
    ),
    Mutant(
        "a repeated request hands out a batch whose lease is over (Redis)",
        "queue/redis/lua/hand_out.lua",
        "if lease and lease[UNTIL] > now then",
        "if lease then",
        _REPEAT,
    ),
    Mutant(
        "PostgreSQL: reap waits for what is just being settled, which waits for it",
        "queue/postgres/schema/0001/06_reap.sql",
        " FOR UPDATE SKIP LOCKED);\n  FOR v IN",
        ");\n  FOR v IN",
        "conformance/test_postgres_waits.py::test_what_is_being_settled_when_its_lease_has_expired_is_not_waited_for",
    ),
    Mutant(
        "reap takes what a heartbeat has kept meanwhile (PostgreSQL)",
        "queue/postgres/schema/0001/06_reap.sql",
        "number = ANY (v_leases) AND (expires_at <= v_now OR worker = ANY (p_workers)) ORDER",
        "number = ANY (v_leases) ORDER",
        "conformance/test_postgres_waits.py",
    ),
    Mutant(
        "what was released is due anew (SQLite)",
        "queue/sqlite/settle.py",
        "due = row[8]  # its old place",
        "due = batch.now",
        _SETTLE,
    ),
    Mutant(
        "what was released is due anew (PostgreSQL)",
        "queue/postgres/schema/0001/05_settle.sql",
        "CASE result WHEN 3 THEN due ELSE v_now END",
        "v_now",
        _SETTLE,
    ),
    Mutant(
        "what was released is due anew (Redis)",
        "queue/redis/lua/settle.lua",
        "if not in_place then\n    task.due = now + one.after",
        "if true then\n    task.due = now + one.after",
        _SETTLE,
    ),
    Mutant(
        "what is released comes before what was released earlier (Redis)",
        "queue/redis/lua/items.lua",
        "if other and other > number then",
        "if other then",
        _SETTLE,
    ),
    Mutant(
        "a run that comes to a lane starts level whatever it weighs (SQLite)",
        "queue/sqlite/lanes.py",
        "SELECT min(h.picks / max(1, r.weight))",
        "SELECT min(h.picks)",
        _LEAD,
    ),
    Mutant(
        "a run that comes to a lane starts level whatever it weighs (PostgreSQL)",
        "queue/postgres/schema/0001/02_lanes.sql",
        "SELECT min(h.picks / greatest(1, r.weight))",
        "SELECT min(h.picks)",
        _LEAD,
    ),
    Mutant(
        "a run that comes to a lane starts level whatever it weighs (Redis)",
        "queue/redis/lua/lanes.lua",
        "(least or 0) * max(1, run.weight)",
        "least or 0",
        _LEAD,
    ),
    Mutant(
        "a run with urgent tasks is taken for one whose tasks are all alike (Redis)",
        "queue/redis/lua/lanes.lua",
        "run.band < 0 and band + 1 or 0)",
        "band + 1)",
        "conformance/test_contract_priority.py::test_urgent_tasks_come_first_also_over_lanes",
    ),
    Mutant(
        "few lanes are looked at, though each gives little of what it has (SQLite)",
        "queue/sqlite/due_lanes.py",
        "count -= min(row[1], to_lane(row).open_slots(now))",
        "count -= row[1]",
        _FURTHER,
    ),
    Mutant(
        "few lanes are looked at, though each gives little of what it has (PostgreSQL)",
        "queue/postgres/schema/0001/04_claim.sql",
        "THEN l.max_in_flight - l.in_flight ELSE h.ready END",
        "THEN h.ready ELSE h.ready END",
        _FURTHER,
    ),
    Mutant(
        "a shared lane with a free place is not asked (SQLite)",
        "queue/sqlite/lanes.py",
        '_WAKE = f"{_OPEN} AND wake_at IS NULL"',
        '_WAKE = f"{_OPEN} AND wake_at < 0"',
        _SHARED,
    ),
    Mutant(
        "a shared lane that is released is asked when it was to be (SQLite)",
        "queue/sqlite/lanes.py",
        '_WAKE_SOONER = f"{_OPEN} AND wake_at > o.at"',
        '_WAKE_SOONER = f"{_OPEN} AND wake_at < 0"',
        _SHARED,
    ),
    Mutant(
        "shared lanes that others used hide the next (SQLite)",
        "queue/sqlite/due_lanes.py",
        "CORRECTIONS = 4",
        "CORRECTIONS = 1",
        _SHARED,
    ),
    Mutant(
        "a shared lane counts as due before its time (SQLite)",
        "queue/sqlite/stats.py",
        '_IS_DUE = "max(l.next_at, l.held_until) <= ?2"',
        '_IS_DUE = "1"',
        _SHARED,
    ),
    Mutant(
        "a shared lane with a free place is not asked (PostgreSQL)",
        "queue/postgres/schema/0001/02_lanes.sql",
        "(p_wake IS NULL OR p_wake > p_opens)",
        "p_wake > p_opens",
        _SHARED,
    ),
    Mutant(
        "a shared lane that is released is asked when it was to be (PostgreSQL)",
        "queue/postgres/schema/0001/02_lanes.sql",
        "(p_wake IS NULL OR p_wake > p_opens)",
        "p_wake IS NULL",
        _SHARED,
    ),
    Mutant(
        "shared lanes that others used hide the next (PostgreSQL)",
        "queue/postgres/schema/0001/04_claim.sql",
        "FOR i IN 1 .. 16 LOOP",
        "FOR i IN 1 .. 1 LOOP",
        _SHARED,
    ),
    Mutant(
        "a shared lane with a free place is not asked (Redis)",
        "queue/redis/lua/claim.lua",
        "        wait_for_place(lane, one.id)\n",
        "",
        _SHARED,
    ),
    Mutant(
        "a shared lane with a free place is not asked by late work (Redis)",
        "queue/redis/lua/wake.lua",
        "          wait_for_place(lane, number)\n",
        "",
        _SHARED,
    ),
    Mutant(
        "a shared lane that is released is asked when it was to be (Redis)",
        "queue/redis/lua/wake.lua",
        "(at and before and at < before)",
        "false",
        _SHARED,
    ),
    Mutant(
        "shared lanes that others used hide the next (Redis)",
        "queue/redis/lua/claim.lua",
        "ROUNDS = 200, 16, 8",
        "ROUNDS = 200, 16, 1",
        _SHARED,
    ),
    Mutant(
        "a shared lane counts as due before its time (Redis)",
        "queue/redis/lua/stats.lua",
        "at and at <= now and max(0, count)",
        "at and max(0, count)",
        _SHARED,
    ),
    Mutant(
        "an idle lane goes with what was learnt about it (SQLite)",
        "queue/sqlite/idle_lanes.py",
        "l.learned = 0 AND l.parked = 0",
        "l.parked = 0",
        _IDLE,
    ),
    Mutant(
        "an idle lane goes though history names it (SQLite)",
        "queue/sqlite/idle_lanes.py",
        " AND NOT EXISTS (SELECT 1 FROM run_lanes h WHERE h.lane = l.id))",
        ")",
        _IDLE,
    ),
    Mutant(
        "idle lanes of a removed run stay asked (SQLite)",
        "queue/sqlite/purge.py",
        "return most if dropped >= lanes.LANES_PER_STEP else count",
        "return count",
        _IDLE,
    ),
    Mutant(
        "an idle lane goes at once (PostgreSQL)",
        "queue/postgres/schema/0001/06_reap.sql",
        "v_before bigint := clock_micros(p_now) - p_kept;",
        "v_before bigint := clock_micros(p_now);",
        _IDLE,
    ),
    Mutant(
        "an idle lane goes with what was learnt about it (Redis)",
        "queue/redis/lua/idle_lanes.lua",
        "lane[FLIGHT] == 0 and lane[LEARNED] == 0",
        "lane[FLIGHT] == 0",
        _IDLE,
    ),
    Mutant(
        "an idle lane goes though history names it (Redis)",
        "queue/redis/idle_lanes.py",
        "if known is not None",
        "if known == b''",
        _IDLE,
    ),
    Mutant(
        "lanes of a removed run are not looked at when idle (Redis)",
        "queue/redis/lua/purge.lua",
        "  call_many('ZADD', P .. 'idle_lanes', values)\n",
        "",
        _IDLE,
    ),
)
