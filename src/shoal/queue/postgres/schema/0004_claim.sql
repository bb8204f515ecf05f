-- Claim, in two steps: claim_look says what is due without a lock, the caller plans, claim_take takes what still is so.

-- Ended because their time to live ran out while they waited. Their lanes are locked.
CREATE FUNCTION bury_expired(p_now bigint, p_tasks bigint[]) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v record;
  v_total integer := 0;
  v_mark text := json_build_object('at', p_now, 'worker', '', 'cause', 'expired', 'message', 'its time to live ran out while it waited')::text;
BEGIN
  FOR v IN
    WITH waiting AS (
      DELETE FROM ready WHERE id = ANY (p_tasks) AND expires_at <= p_now
      RETURNING id, run, lane, band, added_at, expires_at, gave_back, attempts, lost, priority, depth, parent, digest, kind, url, meta, ask, history
    ), later AS (
      DELETE FROM delayed WHERE id = ANY (p_tasks) AND expires_at <= p_now
      RETURNING id, run, lane, band, added_at, expires_at, gave_back, attempts, lost, priority, depth, parent, digest, kind, url, meta, ask, history
    ), gone AS MATERIALIZED (
      SELECT *, false AS late FROM waiting UNION ALL SELECT *, true FROM later
    ), buried AS (
      INSERT INTO dead (id, lease, gave_back, lane, band, ended_at, added_at, expires_at, attempts, lost, priority, depth, parent, digest, kind, url, meta, ask, cause, history)
      SELECT id, 0, gave_back, lane, band, p_now, added_at, expires_at, attempts, lost, priority, depth, parent, digest, kind, url, meta, ask, 'expired', grown(history, v_mark)
      FROM gone
    ), counted AS (
      UPDATE heads h SET ready = h.ready - c.n
      FROM (SELECT run, lane, count(*) AS n FROM gone WHERE NOT late GROUP BY run, lane) c
      WHERE h.run = c.run AND h.lane = c.lane
    )
    SELECT run, count(*) AS n, count(*) FILTER (WHERE late) AS late FROM gone GROUP BY run ORDER BY run
  LOOP
    PERFORM tally(v.run, p_ready => -v.n, p_delayed => -v.late, p_dead => v.n);
    v_total := v_total + v.n;
  END LOOP;
  RETURN v_total;
END
$$;

CREATE FUNCTION expire(p_now bigint, p_tasks bigint[]) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_runs integer[];
  v_lanes integer[];
  v_total integer;
BEGIN
  SELECT array_agg(DISTINCT run), array_agg(DISTINCT lane) INTO v_runs, v_lanes FROM (
    SELECT run, lane FROM ready WHERE id = ANY (p_tasks) UNION ALL SELECT run, lane FROM delayed WHERE id = ANY (p_tasks)) x;
  PERFORM lock_runs(v_runs);
  PERFORM lock_lanes(v_lanes);
  -- What was cancelled with its run while we waited only waits to be removed.
  v_total := bury_expired(tick(p_now), ARRAY(
    SELECT t FROM unnest(p_tasks) t JOIN runs r ON r.id = (t >> 32)::integer AND NOT r.leftovers));
  PERFORM wake(v_lanes);
  RETURN v_total;
END
$$;

-- Delayed tasks whose time has come are ready.
CREATE FUNCTION promote(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v record;
  v_tasks bigint[];
  v_runs integer[];
  v_lanes integer[];
BEGIN
  SELECT array_agg(id), array_agg(DISTINCT run), array_agg(DISTINCT lane) INTO v_tasks, v_runs, v_lanes FROM (
    SELECT d.id, d.run, d.lane FROM delayed d JOIN runs r ON r.id = d.run AND NOT r.leftovers
    WHERE d.due <= p_now ORDER BY d.due LIMIT 1000) x;
  IF v_tasks IS NULL THEN
    RETURN;
  END IF;
  PERFORM lock_runs(v_runs);
  PERFORM lock_lanes(v_lanes);
  FOR v IN
    WITH moved AS (
      DELETE FROM delayed d USING runs r WHERE d.id = ANY (v_tasks) AND d.due <= p_now AND r.id = d.run AND NOT r.leftovers RETURNING d.*
    ), put AS (
      INSERT INTO ready SELECT * FROM moved
    ), counted AS (
      UPDATE heads h SET ready = h.ready + c.n
      FROM (SELECT run, lane, count(*) AS n FROM moved GROUP BY run, lane) c WHERE h.run = c.run AND h.lane = c.lane
    )
    SELECT run, count(*) AS n FROM moved GROUP BY run ORDER BY run
  LOOP
    PERFORM tally(v.run, p_delayed => -v.n);
  END LOOP;
  PERFORM wake(v_lanes);
END
$$;

-- Notice a clock that stepped back; remember the time to the second.
CREATE FUNCTION note_time(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_latest bigint;
BEGIN
  SELECT value INTO v_latest FROM meta WHERE key = 'latest';
  IF p_now < v_latest - 1000000 THEN
    PERFORM forget_future(p_now);
  END IF;
  IF abs(p_now - v_latest) > 1000000 THEN
    UPDATE meta SET value = p_now
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM meta WHERE key = 'latest' FOR UPDATE SKIP LOCKED));
  END IF;
END
$$;

-- What a plan needs, as JSON: now; again (a lease) or runs, heads, alone, strangers, soonest.
-- heads: run, lane, ready, picks, name, next_at, spacing, max_in_flight, in_flight, held_until, parked.
CREATE FUNCTION claim_look(p_now bigint, p_worker text, p_request text, p_serves text[], p_limit integer, p_horizon bigint, p_alive bigint)
RETURNS json LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_now bigint := tick(p_now);
  v_lease bigint;
  v_runs integer[];
  v_stale integer[];
  v_lanes integer[];
  v_heads json;
  v_alone json;
  v_strangers json;
  v_others integer[];
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  IF p_request <> '' THEN
    SELECT number INTO v_lease FROM leases WHERE worker = p_worker AND request = p_request AND expires_at > v_now ORDER BY number DESC LIMIT 1;
    IF FOUND THEN
      RETURN json_build_object('now', v_now, 'again', v_lease);
    END IF;
  END IF;
  PERFORM note_time(v_now);
  PERFORM 1 FROM delayed WHERE due <= v_now LIMIT 1;
  IF FOUND THEN
    PERFORM promote(v_now);
  END IF;
  SELECT array_agg(id ORDER BY share, id), array_agg(id) FILTER (WHERE v_now - asked_at > 1000000) INTO v_runs, v_stale
  FROM runs WHERE state = 'running' AND (p_serves IS NULL OR name = ANY (p_serves) OR scraper = ANY (p_serves));
  IF v_runs IS NULL THEN
    RETURN json_build_object('now', v_now);
  END IF;
  IF v_stale IS NOT NULL THEN
    UPDATE runs SET asked_at = v_now WHERE id = ANY (ARRAY(SELECT id FROM runs WHERE id = ANY (v_stale) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED));
  END IF;
  -- Of each run as many lanes as will do for the limit, and some more for the spread.
  SELECT json_agg(json_build_array(run, lane, ready, picks, name, next_at, spacing, max_in_flight, in_flight, held_until, parked) ORDER BY n, k),
         array_agg(lane) FILTER (WHERE spacing > 0 OR max_in_flight > 0 OR parked > 0)
  INTO v_heads, v_lanes
  FROM (
    SELECT q.*, u.n FROM unnest(v_runs) WITH ORDINALITY u(run, n)
    CROSS JOIN LATERAL (
      SELECT h.run, h.lane, h.ready, h.picks, l.name, l.next_at, l.spacing, l.max_in_flight, l.in_flight, l.held_until, l.parked, row_number() OVER due AS k,
             sum(CASE WHEN l.spacing > 0 OR l.max_in_flight > 0 OR l.parked > 0 THEN 1 ELSE h.ready END) OVER due AS room
      FROM (SELECT * FROM heads WHERE run = u.run AND wake_at <= v_now + p_horizon ORDER BY wake_at LIMIT p_limit) h JOIN lanes l ON l.id = h.lane
      WINDOW due AS (ORDER BY h.wake_at, h.lane ROWS UNBOUNDED PRECEDING)
    ) q
    WHERE q.k <= 16 OR q.room - q.ready < p_limit
    LIMIT 3200
  ) x;
  PERFORM 1 FROM ready WHERE turn = -1 LIMIT 1;
  IF FOUND THEN
    SELECT json_agg(json_build_array(t.id, t.expires_at, t.run, t.lane, h.ready, h.picks, l.name, l.next_at, l.spacing, l.max_in_flight, l.in_flight, l.held_until, l.parked)) INTO v_alone
    FROM unnest(v_runs) WITH ORDINALITY u(run, n)
    CROSS JOIN LATERAL (
      SELECT r.id, r.expires_at, r.run, r.lane FROM ready r
      WHERE r.turn = -1 AND r.run = u.run
        AND EXISTS (SELECT 1 FROM heads h WHERE h.run = r.run AND h.lane = r.lane AND h.wake_at <= v_now + p_horizon)
      ORDER BY r.due LIMIT 20) t
    JOIN heads h ON h.run = t.run AND h.lane = t.lane JOIN lanes l ON l.id = t.lane;
  END IF;
  IF v_lanes IS NOT NULL THEN
    v_others := ARRAY(SELECT id FROM runs WHERE state = 'running' AND asked_at > v_now - p_alive AND NOT id = ANY (v_runs));
    IF cardinality(v_others) > 0 THEN
      SELECT json_agg(json_build_array(h.lane, h.picks::float / greatest(1, r.weight))) INTO v_strangers
      FROM heads h JOIN runs r ON r.id = h.run
      WHERE h.lane = ANY (v_lanes) AND h.run = ANY (v_others) AND h.ready > 0;
    END IF;
  END IF;
  RETURN json_build_object(
    'now', v_now, 'heads', v_heads, 'alone', v_alone, 'strangers', v_strangers,
    'runs', (SELECT json_agg(json_build_array(r.id, r.weight, r.share, CASE WHEN r.max_pages > 0 THEN r.max_pages - (
               SELECT coalesce(sum(done + dead + leased), 0) FROM counters WHERE run = r.id) END) ORDER BY r.share, r.id)
             FROM runs r WHERE r.id = ANY (v_runs)),
    'soonest', CASE WHEN v_heads IS NULL THEN least(
      (SELECT min(h.wake_at) FROM unnest(v_runs) u(run) CROSS JOIN LATERAL (
         SELECT wake_at FROM heads WHERE run = u.run AND wake_at IS NOT NULL ORDER BY wake_at LIMIT 1) h),
      (SELECT min(due) FROM delayed)) ELSE v_now END);
END
$$;

-- The next lease number: it only grows, also when the clock steps back. It runs up to a minute ahead of the
-- clock, so that claims wait for each other once a minute and not every time.
CREATE FUNCTION next_lease(p_now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_number bigint := nextval('lease_numbers');
BEGIN
  IF v_number < p_now THEN
    PERFORM pg_advisory_xact_lock(place(), 0);
    v_number := nextval('lease_numbers');
    IF v_number < p_now THEN
      v_number := setval('lease_numbers', p_now + 60000000);
    END IF;
  END IF;
  RETURN v_number;
END
$$;

-- One pair of claim_take where there is more to look at: a page limit, tasks whose time is over, or the turn of
-- the oldest. Its lane is locked.
CREATE FUNCTION pick(p_now bigint, p_run integer, p_lane integer, p_count integer, p_oldest integer) RETURNS tid[] LANGUAGE plpgsql AS $$
DECLARE
  v_mine tid[];
  v_over bigint[];
  v_old tid[];
  v_first smallint;
BEGIN
  FOR round IN 1 .. 3 LOOP  -- a few rounds, should the first hold tasks whose time is over
    SELECT array_agg(tid) FILTER (WHERE expires_at IS NULL OR expires_at > p_now),
           array_agg(id) FILTER (WHERE expires_at <= p_now), (array_agg(turn))[1]
    INTO v_mine, v_over, v_first
    FROM (SELECT ctid AS tid, id, expires_at, turn FROM ready
          WHERE lane = p_lane AND run = p_run AND turn >= 0 ORDER BY turn, due, id LIMIT p_count) x;
    EXIT WHEN v_over IS NULL;
    PERFORM bury_expired(p_now, v_over);
  END LOOP;
  IF p_oldest > 0 AND cardinality(v_mine) = p_count AND v_first <> (
    SELECT turn FROM ready WHERE lane = p_lane AND run = p_run ORDER BY turn DESC LIMIT 1) THEN
    v_old := ARRAY(SELECT o.tid FROM (
      SELECT r.* FROM generate_series(0, 7) b(turn) CROSS JOIN LATERAL (
        SELECT ctid AS tid, due, id FROM ready
        WHERE lane = p_lane AND run = p_run AND turn = b.turn::smallint AND (expires_at IS NULL OR expires_at > p_now)
        ORDER BY due, id LIMIT p_oldest) r ORDER BY r.due, r.id LIMIT p_oldest) o WHERE NOT o.tid = ANY (v_mine));
    v_mine := v_old || v_mine[1:p_count - cardinality(v_old)];
  END IF;
  RETURN coalesce(v_mine, '{}');
END
$$;

-- Take tasks as planned, from those lanes that are still as they were when looked at. Pairs are (run, lane) with
-- the slots they give, in order, beginning after p_ats; p_bases are their picks before, p_oldest how many picks are
-- for the oldest task. p_alone is a task that goes out by itself. p_floors are the shares the runs are at least at.
CREATE FUNCTION claim_take(p_now bigint, p_worker text, p_request text, p_lease bigint, p_wait boolean, p_alone bigint,
                           p_lanes integer[], p_next bigint[], p_spacings bigint[], p_places integer[], p_flight integer[], p_held bigint[], p_parked integer[],
                           p_pair_runs integer[], p_pair_lanes integer[], p_bases bigint[], p_oldest integer[], p_counts integer[], p_ats integer[], p_slots bigint[],
                           p_runs integer[], p_floors double precision[])
RETURNS SETOF leased LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_now bigint;
  v_good integer[];
  v_open integer[];
  v_limited boolean;
  v_slow boolean;
  v_room bigint;
  v_tids tid[];
  v_slots bigint[];
  v_mine tid[];
  v_pairs integer[];
  v_count integer;
  v_number bigint;
  v record;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  -- The answer to this very request may have been lost on its way.
  SELECT number INTO v_number FROM leases WHERE worker = p_worker AND request = p_request AND expires_at > tick(p_now) LIMIT 1;
  IF FOUND THEN
    RETURN QUERY SELECT * FROM leased WHERE lease = v_number AND NOT cancelled;
    RETURN;
  END IF;
  PERFORM lock_runs(p_runs);
  IF p_wait THEN
    PERFORM lock_lanes(p_lanes);
  END IF;
  -- A lane without limits may have moved on: that changes nothing.
  v_good := ARRAY(
    SELECT l.id FROM unnest(p_lanes, p_next, p_spacings, p_places, p_flight, p_held, p_parked) e(lane, next_at, spacing, places, flight, held, parked)
    JOIN lanes l ON l.id = e.lane
    WHERE l.spacing = e.spacing AND l.max_in_flight = e.places AND l.held_until = e.held AND l.parked = e.parked
      AND (l.spacing = 0 OR l.next_at = e.next_at)
      AND (l.in_flight <= e.flight OR (l.max_in_flight = 0 AND l.parked = 0))
    ORDER BY l.id FOR NO KEY UPDATE OF l SKIP LOCKED);
  SELECT array_agg(id), bool_or(max_pages > 0) INTO v_open, v_limited FROM runs WHERE id = ANY (p_runs) AND state = 'running';
  v_now := tick(p_now);
  IF p_alone IS NOT NULL OR v_limited THEN
    v_slow := true;
  ELSE
    SELECT array_agg(r.tid), array_agg(p_slots[p.at + r.k]), array_agg(p.n::integer), coalesce(bool_or(r.over OR p.mixed), false) INTO v_tids, v_slots, v_pairs, v_slow
    FROM (
      SELECT u.*, u.oldest > 0 AND (SELECT turn FROM ready WHERE lane = u.lane AND run = u.run AND turn >= 0 ORDER BY turn LIMIT 1)
                               <> (SELECT turn FROM ready WHERE lane = u.lane AND run = u.run ORDER BY turn DESC LIMIT 1) AS mixed
      FROM unnest(p_pair_runs, p_pair_lanes, p_oldest, p_counts, p_ats) WITH ORDINALITY u(run, lane, oldest, count, at, n) WHERE u.lane = ANY (v_good) AND u.run = ANY (v_open)
      OFFSET 0
    ) p
    CROSS JOIN LATERAL (
      SELECT tid, expires_at <= v_now AS over, row_number() OVER () AS k
      FROM (SELECT ctid AS tid, expires_at FROM ready WHERE lane = p.lane AND run = p.run AND turn >= 0 ORDER BY turn, due, id LIMIT p.count) x
    ) r;
  END IF;
  IF v_slow THEN
    v_tids := '{}';
    v_slots := '{}';
    v_pairs := '{}';
    FOR i IN 1 .. cardinality(p_pair_runs) LOOP
      CONTINUE WHEN NOT (p_pair_lanes[i] = ANY (v_good) AND p_pair_runs[i] = ANY (v_open));
      v_count := p_counts[i];
      SELECT max_pages INTO v_room FROM runs WHERE id = p_pair_runs[i] AND max_pages > 0;
      IF FOUND THEN
        SELECT v_room - coalesce(sum(done + dead + leased), 0) INTO v_room FROM counters WHERE run = p_pair_runs[i];
        SELECT v_room - count(*) INTO v_room FROM unnest(v_pairs) u(n) WHERE p_pair_runs[n] = p_pair_runs[i];
        v_count := least(v_count, greatest(0, v_room));
      END IF;
      IF p_alone IS NOT NULL THEN
        v_mine := ARRAY(SELECT ctid FROM ready WHERE id = p_alone AND turn = -1 AND lane = p_pair_lanes[i] AND (expires_at IS NULL OR expires_at > v_now) AND v_count > 0);
      ELSE
        v_mine := pick(v_now, p_pair_runs[i], p_pair_lanes[i], v_count, p_oldest[i]);
      END IF;
      v_count := cardinality(v_mine);
      IF v_count > 0 THEN
        v_tids := v_tids || v_mine;
        v_slots := v_slots || p_slots[p_ats[i] + 1:p_ats[i] + v_count];
        v_pairs := v_pairs || array_fill(i, ARRAY[v_count]);
      END IF;
    END LOOP;
  END IF;
  IF coalesce(cardinality(v_tids), 0) = 0 THEN
    PERFORM wake(v_good);
    RETURN;
  END IF;
  v_number := next_lease(v_now);
  INSERT INTO leases (number, worker, request, expires_at) VALUES (v_number, p_worker, p_request, v_now + p_lease);
  RETURN QUERY
    WITH moved AS (
      DELETE FROM ready r USING unnest(v_tids, v_slots) u(tid, slot) WHERE r.ctid = u.tid RETURNING r.*, u.slot
    )
    INSERT INTO leased SELECT id, run, lane, band, due, added_at, expires_at, gave_back, attempts, lost, priority, depth, parent, digest, kind, url, meta, ask, history,
                              v_number, slot, v_now, false FROM moved
    RETURNING *;
  FOR v IN
    WITH got AS MATERIALIZED (
      SELECT p.run, p.lane, p.base, g.n, g.last
      FROM (SELECT pair, count(*)::integer AS n, max(slot) AS last FROM unnest(v_pairs, v_slots) u(pair, slot) GROUP BY pair) g
      JOIN unnest(p_pair_runs, p_pair_lanes, p_bases) WITH ORDINALITY p(run, lane, base, n) ON p.n = g.pair
    ), moved AS (
      -- Slots grow along a lane, so the last one used is its latest.
      UPDATE lanes l SET in_flight = l.in_flight + g.n, next_at = g.last + l.spacing
      FROM (SELECT lane, sum(n) AS n, max(last) AS last FROM got GROUP BY lane) g WHERE l.id = g.lane
      RETURNING l.id, l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until
    ), heads_moved AS (
      UPDATE heads h SET ready = h.ready - coalesce(g.n, 0), picks = CASE WHEN g.n IS NULL THEN h.picks ELSE greatest(h.picks, g.base) + g.n END,
                         wake_at = wake_time(h.ready - coalesce(g.n, 0), l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until)
      FROM moved l JOIN heads o ON o.lane = l.id LEFT JOIN got g ON g.lane = o.lane AND g.run = o.run
      WHERE h.lane = o.lane AND h.run = o.run
        AND (g.n IS NOT NULL OR h.wake_at IS DISTINCT FROM wake_time(h.ready, l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until))
    )
    SELECT g.run, sum(g.n) AS n, f.floor FROM got g JOIN unnest(p_runs, p_floors) f(run, floor) ON f.run = g.run GROUP BY g.run, f.floor ORDER BY g.run
  LOOP
    IF v.floor IS NOT NULL THEN
      UPDATE runs SET share = greatest(share, v.floor) + v.n::float / greatest(1, weight) WHERE id = v.run;
    END IF;
    PERFORM tally(v.run, p_ready => -v.n::bigint, p_leased => v.n::bigint);
  END LOOP;
END
$$;
