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
      RETURNING id, run, lane, band, added_at, expires_at, gave_back, attempts, lost, priority, depth, parent, kind, url, meta, ask, history
    ), later AS (
      DELETE FROM delayed WHERE id = ANY (p_tasks) AND expires_at <= p_now
      RETURNING id, run, lane, band, added_at, expires_at, gave_back, attempts, lost, priority, depth, parent, kind, url, meta, ask, history
    ), gone AS MATERIALIZED (
      SELECT *, false AS late FROM waiting UNION ALL SELECT *, true FROM later
    ), buried AS (
      INSERT INTO dead (id, lease, gave_back, lane, band, ended_at, added_at, expires_at, attempts, lost, priority, depth, parent, kind, url, meta, ask, cause, history)
      SELECT id, 0, gave_back, lane, band, p_now, added_at, expires_at, attempts, lost, priority, depth, parent, kind, url, meta, ask, 'expired', grown(history, v_mark)
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
  PERFORM hint();
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
  SELECT json_agg(json_build_array(x.run, x.lane, x.ready, x.picks, l.name, l.next_at, l.spacing, l.max_in_flight, l.in_flight, l.held_until, l.parked) ORDER BY x.n, x.wake_at),
         array_agg(x.lane) FILTER (WHERE l.spacing > 0 OR l.max_in_flight > 0 OR l.parked > 0)
  INTO v_heads, v_lanes
  FROM (
    SELECT h.*, u.n FROM unnest(v_runs) WITH ORDINALITY u(run, n)
    CROSS JOIN LATERAL (
      SELECT * FROM heads WHERE run = u.run AND wake_at <= v_now + p_horizon ORDER BY wake_at LIMIT p_limit) h
    LIMIT 3200
  ) x JOIN lanes l ON l.id = x.lane;
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

-- Take tasks as planned, from those lanes that are still as they were when looked at. Pairs are (run, lane) with
-- the slots they give, in order; p_bases are their picks before, p_oldest how many picks are for the oldest task.
-- p_alone is a task that goes out by itself. p_floors are the shares the runs are at least at.
CREATE FUNCTION claim_take(p_now bigint, p_worker text, p_request text, p_lease bigint, p_wait boolean, p_alone bigint,
                           p_lanes integer[], p_next bigint[], p_spacings bigint[], p_places integer[], p_flight integer[], p_held bigint[], p_parked integer[],
                           p_pair_runs integer[], p_pair_lanes integer[], p_bases bigint[], p_oldest integer[], p_counts integer[], p_slots bigint[],
                           p_runs integer[], p_floors double precision[])
RETURNS SETOF leased LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_now bigint;
  v_good integer[];
  v_open integer[];
  v_room bigint;
  v_tids tid[] := '{}';
  v_slots bigint[] := '{}';
  v_got integer[] := '{}';
  v_last bigint[] := '{}';
  v_mine tid[];
  v_over bigint[];
  v_old tid[];
  v_first smallint;
  v_count integer;
  v_at integer := 0;
  v_number bigint;
  v record;
BEGIN
  PERFORM hint();
  -- The answer to this very request may have been lost on its way.
  SELECT number INTO v_number FROM leases WHERE worker = p_worker AND request = p_request AND expires_at > tick(p_now) LIMIT 1;
  IF FOUND THEN
    RETURN QUERY SELECT * FROM leased WHERE lease = v_number AND NOT cancelled;
    RETURN;
  END IF;
  PERFORM lock_runs(p_runs);
  IF p_wait THEN
    PERFORM lock_lanes(p_lanes);
    v_good := p_lanes;
  ELSE
    v_good := ARRAY(SELECT id FROM lanes WHERE id = ANY (p_lanes) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED);
  END IF;
  -- A lane without limits may have moved on: that changes nothing.
  v_good := ARRAY(
    SELECT l.id FROM unnest(p_lanes, p_next, p_spacings, p_places, p_flight, p_held, p_parked) e(lane, next_at, spacing, places, flight, held, parked)
    JOIN lanes l ON l.id = e.lane
    WHERE l.id = ANY (v_good) AND l.spacing = e.spacing AND l.max_in_flight = e.places AND l.held_until = e.held AND l.parked = e.parked
      AND (l.spacing = 0 OR l.next_at = e.next_at)
      AND (l.in_flight <= e.flight OR (l.max_in_flight = 0 AND l.parked = 0)));
  v_open := ARRAY(SELECT id FROM runs WHERE id = ANY (p_runs) AND state = 'running');
  v_now := tick(p_now);
  FOR i IN 1 .. cardinality(p_pair_runs) LOOP
    v_count := p_counts[i];
    v_mine := '{}';
    IF p_pair_lanes[i] = ANY (v_good) AND p_pair_runs[i] = ANY (v_open) THEN
      SELECT max_pages INTO v_room FROM runs WHERE id = p_pair_runs[i] AND max_pages > 0;
      IF FOUND THEN
        SELECT v_room - coalesce(sum(done + dead + leased), 0) INTO v_room FROM counters WHERE run = p_pair_runs[i];
        SELECT v_room - coalesce(sum(n), 0) INTO v_room FROM unnest(p_pair_runs[1:i - 1], v_got) g(run, n) WHERE run = p_pair_runs[i];
        v_count := least(v_count, greatest(0, v_room));
      END IF;
      IF p_alone IS NOT NULL THEN
        v_mine := ARRAY(SELECT ctid FROM ready WHERE id = p_alone AND turn = -1 AND lane = p_pair_lanes[i] AND (expires_at IS NULL OR expires_at > v_now) AND v_count > 0);
      ELSE
        FOR round IN 1 .. 3 LOOP  -- a few rounds, should the first hold tasks whose time is over
          SELECT array_agg(tid) FILTER (WHERE expires_at IS NULL OR expires_at > v_now),
                 array_agg(id) FILTER (WHERE expires_at <= v_now), (array_agg(turn))[1]
          INTO v_mine, v_over, v_first
          FROM (SELECT ctid AS tid, id, expires_at, turn FROM ready
                WHERE lane = p_pair_lanes[i] AND run = p_pair_runs[i] AND turn >= 0 ORDER BY turn, due, id LIMIT v_count) x;
          EXIT WHEN v_over IS NULL;
          PERFORM bury_expired(v_now, v_over);
        END LOOP;
        IF p_oldest[i] > 0 AND cardinality(v_mine) = v_count AND v_first <> (
          SELECT turn FROM ready WHERE lane = p_pair_lanes[i] AND run = p_pair_runs[i] ORDER BY turn DESC LIMIT 1) THEN
          v_old := ARRAY(SELECT o.tid FROM (
            SELECT r.* FROM generate_series(0, 7) b(turn) CROSS JOIN LATERAL (
              SELECT ctid AS tid, due, id FROM ready
              WHERE lane = p_pair_lanes[i] AND run = p_pair_runs[i] AND turn = b.turn::smallint AND (expires_at IS NULL OR expires_at > v_now)
              ORDER BY due, id LIMIT p_oldest[i]) r ORDER BY r.due, r.id LIMIT p_oldest[i]) o WHERE NOT o.tid = ANY (v_mine));
          v_mine := v_old || v_mine[1:v_count - cardinality(v_old)];
        END IF;
      END IF;
    END IF;
    v_count := coalesce(cardinality(v_mine), 0);
    v_got := v_got || v_count;
    v_last := v_last || p_slots[v_at + v_count];
    IF v_count > 0 THEN
      v_tids := v_tids || v_mine;
      v_slots := v_slots || p_slots[v_at + 1:v_at + v_count];
    END IF;
    v_at := v_at + p_counts[i];
  END LOOP;
  IF cardinality(v_tids) = 0 THEN
    PERFORM wake(v_good);
    RETURN;
  END IF;
  v_number := next_lease(v_now);
  INSERT INTO leases (number, worker, request, expires_at) VALUES (v_number, p_worker, p_request, v_now + p_lease);
  RETURN QUERY
    WITH moved AS (
      DELETE FROM ready r USING unnest(v_tids, v_slots) u(tid, slot) WHERE r.ctid = u.tid RETURNING r.*, u.slot
    )
    INSERT INTO leased SELECT id, run, lane, band, due, added_at, expires_at, gave_back, attempts, lost, priority, depth, parent, kind, url, meta, ask, history,
                              v_number, slot, v_now, false FROM moved
    RETURNING *;
  -- Slots grow along a lane, so the last one used is its latest.
  UPDATE lanes l SET in_flight = l.in_flight + g.n, next_at = g.last + l.spacing
  FROM (SELECT lane, sum(n) AS n, max(last) FILTER (WHERE n > 0) AS last FROM unnest(p_pair_lanes, v_got, v_last) x(lane, n, last) GROUP BY lane) g
  WHERE l.id = g.lane AND g.n > 0;
  UPDATE heads h SET ready = h.ready - g.n, picks = greatest(h.picks, g.base) + g.n,
                     wake_at = wake_time(h.ready - g.n, l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until)
  FROM unnest(p_pair_runs, p_pair_lanes, v_got, p_bases) g(run, lane, n, base) JOIN lanes l ON l.id = g.lane
  WHERE h.run = g.run AND h.lane = g.lane AND g.n > 0;
  PERFORM wake(v_good);
  IF cardinality(p_runs) > 1 THEN
    PERFORM 1 FROM runs WHERE id = ANY (p_runs) ORDER BY id FOR NO KEY UPDATE;
  END IF;
  FOR v IN
    SELECT g.run, sum(g.n) AS n, f.floor FROM unnest(p_pair_runs, v_got) g(run, n) JOIN unnest(p_runs, p_floors) f(run, floor) ON f.run = g.run
    GROUP BY g.run, f.floor ORDER BY g.run
  LOOP
    IF v.floor IS NOT NULL THEN
      UPDATE runs SET share = greatest(share, v.floor) + v.n::float / greatest(1, weight) WHERE id = v.run;
    END IF;
    PERFORM tally(v.run, p_ready => -v.n::bigint, p_leased => v.n::bigint);
  END LOOP;
END
$$;
