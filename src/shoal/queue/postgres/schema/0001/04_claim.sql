-- Claim, in two steps: claim_candidates says what is due without a lock, the caller plans, claim_take takes what still is so.

-- Ended because their time to live ran out while they waited. Their lanes are locked.
CREATE FUNCTION dead_letter_expired(p_now bigint, p_tasks bigint[]) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v record;
  v_total integer := 0;
  v_mark text := json_build_object('at', p_now, 'worker', '', 'cause', 'expired', 'message', 'its time to live ran out while it waited')::text;
BEGIN
  FOR v IN
    WITH waiting AS (
      DELETE FROM ready WHERE id = ANY (p_tasks) AND expires_at <= p_now
      RETURNING id, run, lane, band, added_at, expires_at, returned_lease, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, history
    ), later AS (
      DELETE FROM delayed WHERE id = ANY (p_tasks) AND expires_at <= p_now
      RETURNING id, run, lane, band, added_at, expires_at, returned_lease, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, history
    ), gone AS MATERIALIZED (
      SELECT *, false AS late FROM waiting UNION ALL SELECT *, true FROM later
    ), dead_lettered AS (
      INSERT INTO dead (id, lease, returned_lease, lane, band, ended_at, added_at, expires_at, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, cause, history)
      SELECT id, 0, returned_lease, lane, band, p_now, added_at, expires_at, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, 'expired', append_attempt(history, v_mark)
      FROM gone
    ), counted AS (
      UPDATE run_lanes h SET ready = h.ready - c.n
      FROM (SELECT run, lane, needs, count(*) AS n FROM gone WHERE NOT late GROUP BY run, lane, needs) c
      WHERE h.run = c.run AND h.lane = c.lane AND h.needs = c.needs
    )
    SELECT run, count(*) AS n, count(*) FILTER (WHERE late) AS late FROM gone GROUP BY run ORDER BY run
  LOOP
    PERFORM add_counters(v.run, p_ready => -v.n, p_delayed => -v.late, p_dead => v.n);
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
  v_total := dead_letter_expired(clock_micros(p_now), ARRAY(
    SELECT t FROM unnest(p_tasks) t JOIN runs r ON r.id = (t >> 32)::integer AND NOT r.leftovers));
  PERFORM wake(v_lanes);
  RETURN v_total;
END
$$;

-- Delayed tasks of these runs whose time has come are ready.
CREATE FUNCTION promote(p_now bigint, p_runs integer[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v record;
  v_tasks bigint[];
  v_runs integer[];
  v_lanes integer[];
BEGIN
  SELECT array_agg(id), array_agg(DISTINCT run), array_agg(DISTINCT lane) INTO v_tasks, v_runs, v_lanes FROM (
    SELECT d.id, d.run, d.lane FROM unnest(p_runs) u(run)
    CROSS JOIN LATERAL (SELECT id, run, lane FROM delayed WHERE run = u.run AND due <= p_now ORDER BY due LIMIT 1000) d LIMIT 1000) x;
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
      UPDATE run_lanes h SET ready = h.ready + c.n
      FROM (SELECT run, lane, needs, count(*) AS n FROM moved GROUP BY run, lane, needs) c WHERE h.run = c.run AND h.lane = c.lane AND h.needs = c.needs
    )
    SELECT run, count(*) AS n FROM moved GROUP BY run ORDER BY run
  LOOP
    PERFORM add_counters(v.run, p_delayed => -v.n);
  END LOOP;
  PERFORM wake(v_lanes);
END
$$;

-- When the oldest tasks of a run came that are ready in a lane, oldest first.
CREATE FUNCTION oldest_tasks(p_run integer, p_lane integer, p_needs smallint, p_count integer) RETURNS bigint[] LANGUAGE sql STABLE AS $$
  SELECT ARRAY(
    SELECT r.due FROM generate_series(0, 7) b(claim_band) CROSS JOIN LATERAL (
      SELECT due FROM ready WHERE lane = p_lane AND run = p_run AND needs = p_needs AND claim_band = b.claim_band::smallint ORDER BY due, id LIMIT p_count) r
    ORDER BY r.due LIMIT p_count)
$$;

-- What a plan needs, as JSON: now; again (a lease) or runs, run_lanes, isolated, competitors, soonest, reach. p_has are the
-- worker's capabilities, or NULL; reach then says which needs (a bit each) of which run it can meet.
-- run_lanes (several of a lane where work has needs): run, lane, ready, picks, oldest tasks (where priorities differ and their turn may come), top band (where bands differ), name, next_at, spacing, max_in_flight, in_flight, held_until, parked, given.
CREATE FUNCTION claim_candidates(p_now bigint, p_worker text, p_request text, p_serves text[], p_has text[], p_limit integer, p_horizon bigint, p_alive bigint)
RETURNS json LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_now bigint := clock_micros(p_now);
  v_lease bigint;
  v_runs integer[];
  v_stale integer[];
  v_lanes integer[];
  v_near integer[];
  v_wrong_runs integer[]; v_wrong_lanes integer[]; v_wrong_needs smallint[];
  v_run_lanes json;
  v_isolated json;
  v_competitors json;
  v_others integer[];
  v_of integer[];  -- runs, each as often as there are kinds of needs that the worker can meet
  v_needs smallint[];  -- these, beside the runs
  v_others_want boolean;  -- there may be work in a lane that is not this run's
  v_mixed boolean;  -- runs of several priorities are served: in a lane they share, every 16th task is the oldest of any
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  IF p_request <> '' THEN
    SELECT number INTO v_lease FROM leases WHERE worker = p_worker AND request = p_request AND expires_at > v_now ORDER BY number DESC LIMIT 1;
    IF FOUND THEN
      RETURN json_build_object('now', v_now, 'again', v_lease);
    END IF;
  END IF;
  PERFORM note_clock(v_now);
  SELECT array_agg(id ORDER BY priority DESC, share, id), array_agg(id) FILTER (WHERE v_now - last_claim_at > 1000000), min(priority) < max(priority)
  INTO v_runs, v_stale, v_mixed
  FROM runs WHERE state = 'running' AND NOT outbox_full AND (p_serves IS NULL OR name = ANY (p_serves) OR scraper = ANY (p_serves));
  IF v_runs IS NULL THEN
    RETURN json_build_object('now', v_now);
  END IF;
  PERFORM 1 FROM unnest(v_runs) u(run) CROSS JOIN LATERAL (SELECT 1 FROM delayed WHERE run = u.run AND due <= v_now LIMIT 1) d LIMIT 1;
  IF FOUND THEN
    PERFORM promote(v_now, v_runs);
  END IF;
  IF v_stale IS NOT NULL THEN
    UPDATE runs SET last_claim_at = v_now WHERE id = ANY (ARRAY(SELECT id FROM runs WHERE id = ANY (v_stale) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED));
  END IF;
  IF p_has IS NULL THEN
    v_of := v_runs;
    v_needs := array_fill(0::smallint, ARRAY[cardinality(v_runs)]);
  ELSE
    SELECT array_agg(x.run ORDER BY x.n, x.needs), array_agg(x.needs ORDER BY x.n, x.needs) INTO v_of, v_needs
    FROM (SELECT u.run, u.n, 0::smallint AS needs FROM unnest(v_runs) WITH ORDINALITY u(run, n)
          UNION ALL SELECT u.run, u.n, s.needs FROM unnest(v_runs) WITH ORDINALITY u(run, n) JOIN run_needs s ON s.run = u.run AND s.names <@ p_has) x;
  END IF;
  v_others_want := cardinality(v_of) > 1 OR EXISTS (SELECT 1 FROM runs WHERE state = 'running' AND last_claim_at > v_now - p_alive AND NOT id = ANY (v_runs));
  -- Lanes that have moved on, or are full, are put where they belong; where nothing else was found, others are looked at.
  FOR i IN 1 .. 16 LOOP
    -- Of very many runs the first with work that may be due: they come by priority, and of equals those with the least share.
    v_near := CASE WHEN cardinality(v_of) <= 32 THEN v_runs ELSE ARRAY(
      SELECT u.run FROM unnest(v_of, v_needs) u(run, needs)
      WHERE EXISTS (SELECT 1 FROM run_lanes WHERE run + 0 = u.run AND needs = u.needs AND wake_at <= v_now + p_horizon)
        AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = u.run AND r.max_pages > 0
                          AND r.max_pages <= (SELECT coalesce(sum(done + dead + discarded + leased - aside), 0) FROM counters WHERE run = r.id)) LIMIT 32) END;
    -- Of each run as many lanes as will do for the limit, and some more for the spread; where there are many runs, for the spread.
    -- Room is what a lane can give within the horizon; if that is not all this run's, or urgent tasks may be in any lane, it counts for one.
    SELECT json_agg(json_build_array(run, lane, ready, picks, CASE WHEN v_mixed AND given % 16 + p_limit >= 16 THEN oldest_tasks(run, lane, needs, p_limit / 16 + 1) END,
                                     CASE WHEN has_bands THEN (SELECT min(claim_band) FROM ready r WHERE r.lane = x.lane AND r.run = x.run AND r.needs = x.needs AND claim_band >= 0) END,
                                     name, next_at, spacing, max_in_flight, in_flight, held_until, parked, given) ORDER BY n, opens_at, k) FILTER (WHERE is_due),
           array_agg(lane) FILTER (WHERE is_due AND (spacing > 0 OR max_in_flight > 0 OR parked > 0)),
           array_agg(run) FILTER (WHERE NOT is_due), array_agg(lane) FILTER (WHERE NOT is_due), array_agg(needs) FILTER (WHERE NOT is_due)
    INTO v_run_lanes, v_lanes, v_wrong_runs, v_wrong_lanes, v_wrong_needs
    FROM (
      SELECT q.*, u.n, a.bands & (a.bands - 1) <> 0 AS has_bands, coalesce(q.opens_at <= v_now + p_horizon, false) AS is_due
      FROM unnest(v_of, v_needs) WITH ORDINALITY u(run, needs, n) JOIN runs a ON a.id = u.run
      CROSS JOIN LATERAL (
        SELECT h.run, h.lane, h.needs, h.ready,
               CASE h.needs WHEN 0 THEN h.picks ELSE (SELECT o.picks FROM run_lanes o WHERE o.lane = h.lane AND o.run = h.run AND o.needs = 0) END AS picks, l.name, l.next_at, l.spacing, l.max_in_flight, l.in_flight, l.held_until, l.parked, l.given, row_number() OVER due AS k,
               wake_time(1, l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until) AS opens_at,
               sum(CASE WHEN l.spacing = 0 AND l.max_in_flight = 0 AND l.parked = 0 THEN h.ready
                        WHEN v_others_want OR l.parked > 0 OR a.bands & (a.bands - 1) <> 0 THEN 1
                        ELSE least(h.ready, CASE WHEN l.max_in_flight > 0 THEN l.max_in_flight - l.in_flight ELSE h.ready END,
                                   CASE WHEN l.spacing > 0 THEN (v_now + p_horizon - greatest(l.next_at, l.held_until, v_now)) / l.spacing + 1 ELSE h.ready END) END) OVER due AS room
        FROM (SELECT * FROM run_lanes WHERE run + 0 = u.run AND needs = u.needs AND wake_at <= v_now + p_horizon ORDER BY wake_at
              LIMIT CASE WHEN cardinality(v_of) <= 32 THEN greatest(p_limit, 16) ELSE 16 END) h
        CROSS JOIN LATERAL (SELECT name, next_at, spacing, max_in_flight, in_flight, held_until, parked, given FROM lanes WHERE id = h.lane OFFSET 0) l  -- one look-up each
        WINDOW due AS (ORDER BY h.wake_at, h.lane ROWS UNBOUNDED PRECEDING)
      ) q
      WHERE u.run = ANY (v_near) AND (q.k <= 16 OR q.room - q.ready < p_limit)
      LIMIT 3200
    ) x;
    EXIT WHEN v_wrong_runs IS NULL;
    PERFORM correct_wake(v_wrong_runs, v_wrong_lanes, v_wrong_needs);
    EXIT WHEN v_run_lanes IS NOT NULL;
  END LOOP;
  PERFORM 1 FROM unnest(v_runs) u(run) CROSS JOIN LATERAL (SELECT 1 FROM ready WHERE claim_band = -1 AND run = u.run LIMIT 1) r LIMIT 1;
  IF FOUND THEN
    SELECT json_agg(json_build_array(t.id, t.expires_at, t.run, t.lane, h.ready, h.picks, l.name, l.next_at, l.spacing, l.max_in_flight, l.in_flight, l.held_until, l.parked, l.given)) INTO v_isolated
    FROM unnest(v_of, v_needs) WITH ORDINALITY u(run, needs, n)
    CROSS JOIN LATERAL (
      SELECT r.id, r.expires_at, r.run, r.lane FROM ready r
      WHERE r.claim_band = -1 AND r.run = u.run AND r.needs = u.needs
        AND EXISTS (SELECT 1 FROM run_lanes h JOIN lanes o ON o.id = h.lane WHERE h.run = r.run AND h.lane = r.lane AND h.needs = r.needs AND h.wake_at <= v_now + p_horizon
                      AND wake_time(1, o.max_in_flight, o.in_flight, o.parked, o.next_at, o.held_until) <= v_now + p_horizon)
      ORDER BY r.due LIMIT 20) t
    JOIN run_lanes h ON h.run = t.run AND h.lane = t.lane AND h.needs = 0 JOIN lanes l ON l.id = t.lane;
  END IF;
  IF v_lanes IS NOT NULL THEN
    v_others := ARRAY(SELECT id FROM runs WHERE state = 'running' AND last_claim_at > v_now - p_alive AND NOT id = ANY (v_runs));
    IF cardinality(v_others) > 0 THEN
      SELECT json_agg(json_build_array(h.lane, h.picks::float / greatest(1, r.weight), r.priority)) INTO v_competitors
      FROM run_lanes h JOIN runs r ON r.id = h.run
      WHERE h.lane = ANY (v_lanes) AND h.run = ANY (v_others) AND h.needs = 0 AND h.ready > 0;  -- nobody may be there for the others
    END IF;
  END IF;
  RETURN json_build_object(
    'now', v_now, 'run_lanes', v_run_lanes, 'isolated', v_isolated, 'competitors', v_competitors,
    'runs', (SELECT json_agg(json_build_array(r.id, r.weight, r.share, r.priority, CASE WHEN r.max_pages > 0 THEN r.max_pages - (
               SELECT coalesce(sum(done + dead + discarded + leased - aside), 0) FROM counters WHERE run = r.id) END) ORDER BY r.priority DESC, r.share, r.id)
             FROM runs r WHERE r.id = ANY (CASE WHEN v_isolated IS NULL THEN v_near ELSE v_runs END)),
    'soonest', CASE WHEN v_run_lanes IS NULL THEN least(
      (SELECT min(h.wake_at) FROM unnest(v_of, v_needs) u(run, needs) CROSS JOIN LATERAL (
         SELECT wake_at FROM run_lanes WHERE run + 0 = u.run AND needs = u.needs AND wake_at IS NOT NULL ORDER BY wake_at LIMIT 1) h),
      (SELECT min(d.due) FROM unnest(v_runs) u(run) CROSS JOIN LATERAL (
         SELECT due FROM delayed WHERE run = u.run ORDER BY due LIMIT 1) d)) ELSE v_now END,
    'reach', CASE WHEN cardinality(v_of) > cardinality(v_runs) THEN (
      SELECT json_agg(json_build_array(x.run, x.bits)) FROM (SELECT run, bit_or(1 << needs) AS bits FROM unnest(v_of, v_needs) u(run, needs) GROUP BY run) x) END);
END
$$;

-- The next lease number: it only grows, also when the clock steps back. It runs up to a minute ahead of the
-- clock, so that claims wait for each other once a minute and not every time.
CREATE FUNCTION next_lease(p_now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_number bigint := nextval('lease_numbers');
BEGIN
  IF v_number < p_now THEN
    PERFORM pg_advisory_xact_lock(lock_namespace(), 0);
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
CREATE FUNCTION pick(p_now bigint, p_run integer, p_lane integer, p_reach integer, p_count integer, p_oldest integer) RETURNS tid[] LANGUAGE plpgsql AS $$
DECLARE
  v_mine tid[];
  v_over bigint[];
  v_old tid[];
  v_first smallint;
  v_needs smallint[] := ARRAY(SELECT n::smallint FROM generate_series(0, 16) n WHERE (p_reach >> n) & 1 = 1);
BEGIN
  FOR round IN 1 .. 3 LOOP  -- a few rounds, should the first hold tasks whose time is over
    SELECT array_agg(tid) FILTER (WHERE expires_at IS NULL OR expires_at > p_now),
           array_agg(id) FILTER (WHERE expires_at <= p_now), (array_agg(claim_band))[1]
    INTO v_mine, v_over, v_first
    FROM (SELECT r.* FROM unnest(v_needs) u(needs) CROSS JOIN LATERAL (
            SELECT ctid AS tid, id, expires_at, claim_band, due FROM ready
            WHERE lane = p_lane AND run = p_run AND needs = u.needs AND claim_band >= 0 ORDER BY claim_band, due, id LIMIT p_count) r
          ORDER BY claim_band, due, id LIMIT p_count) x;
    EXIT WHEN v_over IS NULL;
    PERFORM dead_letter_expired(p_now, v_over);
  END LOOP;
  IF p_oldest > 0 AND cardinality(v_mine) = p_count AND v_first <> (
    SELECT max(r.claim_band) FROM unnest(v_needs) u(needs) CROSS JOIN LATERAL (
      SELECT claim_band FROM ready WHERE lane = p_lane AND run = p_run AND needs = u.needs ORDER BY claim_band DESC LIMIT 1) r) THEN
    v_old := ARRAY(SELECT o.tid FROM (
      SELECT r.* FROM generate_series(0, 7) b(claim_band) CROSS JOIN unnest(v_needs) u(needs) CROSS JOIN LATERAL (
        SELECT ctid AS tid, due, id FROM ready
        WHERE lane = p_lane AND run = p_run AND needs = u.needs AND claim_band = b.claim_band::smallint AND (expires_at IS NULL OR expires_at > p_now)
        ORDER BY due, id LIMIT p_oldest) r ORDER BY r.due, r.id LIMIT p_oldest) o WHERE NOT o.tid = ANY (v_mine));
    v_mine := v_old || v_mine[1:p_count - cardinality(v_old)];
  END IF;
  RETURN coalesce(v_mine, '{}');
END
$$;

-- Take tasks as planned, from those lanes that are still as they were when looked at. Pairs are (run, lane) with
-- the slots they give, in order, beginning after p_ats; p_bases are their picks before, p_oldest how many picks are
-- for the oldest task, p_reach which needs the worker can meet (a bit each; NULL: all are 1, work without needs). p_isolated is a task that goes out by itself. p_floors are the shares the runs are at least at.
CREATE FUNCTION claim_take(p_now bigint, p_worker text, p_request text, p_lease bigint, p_wait boolean, p_isolated bigint,
                           p_lanes integer[], p_next bigint[], p_spacings bigint[], p_places integer[], p_flight integer[], p_held bigint[], p_parked integer[],
                           p_pair_runs integer[], p_pair_lanes integer[], p_bases bigint[], p_oldest integer[], p_reach integer[], p_counts integer[], p_ats integer[], p_slots bigint[],
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
  v_needs smallint[];  -- of the tasks taken; NULL where none has any
  v_count integer;
  v_number bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  -- The answer to this very request may have been lost on its way.
  SELECT number INTO v_number FROM leases WHERE worker = p_worker AND request = p_request AND expires_at > clock_micros(p_now) LIMIT 1;
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
  v_now := clock_micros(p_now);
  IF p_isolated IS NOT NULL OR v_limited OR p_reach IS NOT NULL THEN
    v_slow := true;
  ELSE
    SELECT array_agg(r.tid), array_agg(p_slots[p.at + r.k]), array_agg(p.n::integer), coalesce(bool_or(r.over OR p.mixed), false) INTO v_tids, v_slots, v_pairs, v_slow
    FROM (
      SELECT u.*, u.oldest > 0 AND (SELECT claim_band FROM ready WHERE lane = u.lane AND run = u.run AND needs = 0 AND claim_band >= 0 ORDER BY claim_band LIMIT 1)
                               <> (SELECT claim_band FROM ready WHERE lane = u.lane AND run = u.run AND needs = 0 ORDER BY claim_band DESC LIMIT 1) AS mixed
      FROM unnest(p_pair_runs, p_pair_lanes, p_oldest, p_counts, p_ats) WITH ORDINALITY u(run, lane, oldest, count, at, n) WHERE u.lane = ANY (v_good) AND u.run = ANY (v_open)
      OFFSET 0
    ) p
    CROSS JOIN LATERAL (
      SELECT tid, expires_at <= v_now AS over, row_number() OVER () AS k
      FROM (SELECT ctid AS tid, expires_at FROM ready WHERE lane = p.lane AND run = p.run AND needs = 0 AND claim_band >= 0 ORDER BY claim_band, due, id LIMIT p.count) x
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
        SELECT v_room - coalesce(sum(done + dead + discarded + leased - aside), 0) INTO v_room FROM counters WHERE run = p_pair_runs[i];
        SELECT v_room - count(*) INTO v_room FROM unnest(v_pairs) u(n) WHERE p_pair_runs[n] = p_pair_runs[i];
        v_count := least(v_count, greatest(0, v_room));
      END IF;
      IF p_isolated IS NOT NULL THEN
        v_mine := ARRAY(SELECT ctid FROM ready WHERE id = p_isolated AND claim_band = -1 AND lane = p_pair_lanes[i] AND (expires_at IS NULL OR expires_at > v_now) AND v_count > 0);
      ELSE
        v_mine := pick(v_now, p_pair_runs[i], p_pair_lanes[i], coalesce(p_reach[i], 1), v_count, p_oldest[i]);
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
  IF p_isolated IS NOT NULL OR p_reach IS NOT NULL THEN
    v_needs := ARRAY(SELECT r.needs FROM unnest(v_tids) WITH ORDINALITY u(tid, n) JOIN ready r ON r.ctid = u.tid ORDER BY u.n);
  END IF;
  v_number := next_lease(v_now);
  INSERT INTO leases (number, worker, request, expires_at) VALUES (v_number, p_worker, p_request, v_now + p_lease);
  RETURN QUERY
    WITH moved AS (
      DELETE FROM ready r USING unnest(v_tids, v_slots) u(tid, slot) WHERE r.ctid = u.tid RETURNING r.*, u.slot
    )
    INSERT INTO leased SELECT id, run, lane, band, due, added_at, expires_at, returned_lease, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, history,
                              v_number, slot, v_now, false FROM moved
    RETURNING *;
  PERFORM 1 FROM runs WHERE id = ANY (ARRAY(SELECT f.run FROM unnest(p_runs, p_floors) f(run, floor) WHERE f.floor IS NOT NULL)) ORDER BY id FOR NO KEY UPDATE;
  WITH got AS MATERIALIZED (
    SELECT p.run, p.lane, p.base, g.needs, g.n, g.last
    FROM (SELECT pair, coalesce(needs, 0::smallint) AS needs, count(*)::integer AS n, max(slot) AS last FROM unnest(v_pairs, v_slots, v_needs) u(pair, slot, needs) GROUP BY 1, 2) g
    JOIN unnest(p_pair_runs, p_pair_lanes, p_bases) WITH ORDINALITY p(run, lane, base, n) ON p.n = g.pair
  ), moved AS (
    -- Slots grow along a lane, so the last one used is its latest.
    UPDATE lanes l SET in_flight = l.in_flight + g.n, given = l.given + g.n, next_at = g.last + l.spacing
    FROM (SELECT lane, sum(n) AS n, max(last) AS last FROM got GROUP BY lane) g WHERE l.id = g.lane
    RETURNING l.id, l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until
  ), run_lanes_moved AS (
    -- The others that want the lane find out when they look.
    UPDATE run_lanes h SET ready = h.ready - g.n, picks = CASE WHEN h.needs > 0 THEN h.picks ELSE greatest(h.picks, g.base) + g.n END,
                       wake_at = wake_time(h.ready - g.n, l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until)
    FROM moved l JOIN got g ON g.lane = l.id WHERE h.lane = g.lane AND h.run = g.run AND h.needs = g.needs
  ), shared AS (
    UPDATE runs r SET share = greatest(r.share, f.floor) + g.n::float / greatest(1, r.weight)
    FROM (SELECT run, sum(n) AS n FROM got GROUP BY run) g JOIN unnest(p_runs, p_floors) f(run, floor) ON f.run = g.run
    WHERE r.id = g.run AND f.floor IS NOT NULL
  )
  INSERT INTO counters AS c (run, shard, ready, leased)
  SELECT run, pg_backend_pid() % 32, -sum(n), sum(n) FROM got GROUP BY run ORDER BY run
  ON CONFLICT (run, shard) DO UPDATE SET ready = c.ready + excluded.ready, leased = c.leased + excluded.leased;
  IF 0 < ANY (v_needs) THEN
    UPDATE run_lanes h SET picks = greatest(h.picks, p.base) + g.n
    FROM (SELECT pair, count(*) AS n FROM unnest(v_pairs, v_needs) u(pair, needs) WHERE needs > 0 GROUP BY pair) g
    JOIN unnest(p_pair_runs, p_pair_lanes, p_bases) WITH ORDINALITY p(run, lane, base, n) ON p.n = g.pair
    WHERE h.run = p.run AND h.lane = p.lane AND h.needs = 0;
  END IF;
END
$$;
