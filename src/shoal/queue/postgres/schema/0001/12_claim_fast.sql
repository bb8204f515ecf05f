-- Work without limits, taken in one step: where a worker serves one run, and nothing that is due has a limit, needs
-- its turn among others, is more urgent than the rest, or has lost a worker. No rows: it is not so simple, or there is nothing; look and take then.

CREATE FUNCTION claim_without_limits(p_now bigint, p_worker text, p_request text, p_lease bigint, p_serves text[], p_has text[], p_limit integer)
RETURNS TABLE (o_id bigint, o_lease bigint, o_name text, o_url text, o_kind text, o_priority bigint, o_depth integer, o_parent bigint,
               o_meta text, o_request_options text, o_auto_ack boolean, o_attempts integer, o_history text, o_expires_at bigint)
LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_now bigint := clock_micros(p_now);
  v_runs integer[];
  v_simple boolean;
  v_lanes integer[];
  v_good integer[];
  v_counts integer[];
  v_crossed boolean[];
  v_tids tid[];
  v_from integer[];
  v_number bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM 1 FROM leases WHERE worker = p_worker AND request = p_request LIMIT 1;
  IF FOUND THEN
    RETURN;
  END IF;
  -- The clock is looked at once a second, and who asks is noted then.
  SELECT array_agg(id), bool_and(max_pages = 0 AND bands & (bands - 1) = 0 AND abs(v_now - last_claim_at) < 1000000) INTO v_runs, v_simple
  FROM runs WHERE state = 'running' AND NOT outbox_full AND (p_serves IS NULL OR name = ANY (p_serves) OR scraper = ANY (p_serves));
  IF v_simple IS NOT TRUE OR cardinality(v_runs) > 1 OR EXISTS (SELECT 1 FROM delayed WHERE run = v_runs[1] AND due <= v_now) OR EXISTS (SELECT 1 FROM ready WHERE claim_band = -1 AND run = v_runs[1] AND needs = 0)
     OR (p_has IS NOT NULL AND EXISTS (SELECT 1 FROM run_needs WHERE run = v_runs[1])) THEN
    RETURN;
  END IF;
  -- A batch is spread over sixteen lanes or more; those that have more to give make up for the others.
  SELECT array_agg(x.lane), array_agg((x.base + greatest(0, least(x.ready - x.base, p_limit - x.all_bases - x.spare_before)))::integer),
         array_agg(x.picks % 16 + x.ready >= 16), bool_and(x.free)
  INTO v_lanes, v_counts, v_crossed, v_simple
  FROM (
    SELECT y.*, sum(y.base) OVER () AS all_bases, sum(y.ready - y.base) OVER (ORDER BY y.k ROWS UNBOUNDED PRECEDING) - (y.ready - y.base) AS spare_before
    FROM (
      SELECT z.*, least(z.ready, (p_limit + least(16, count(*) OVER ()) - 1) / least(16, count(*) OVER ())) AS base
      FROM (
        SELECT h.lane, h.ready, h.picks, l.spacing = 0 AND l.max_in_flight = 0 AND l.parked = 0 AS free,
               row_number() OVER due AS k, sum(h.ready) OVER due - h.ready AS before
        FROM (SELECT * FROM run_lanes WHERE run + 0 = v_runs[1] AND needs = 0 AND wake_at <= v_now + 2000000 ORDER BY wake_at LIMIT p_limit) h
        -- One look-up each: a plan for any number of them would read all lanes there are.
        CROSS JOIN LATERAL (SELECT spacing, max_in_flight, parked FROM lanes WHERE id = h.lane OFFSET 0) l
        WINDOW due AS (ORDER BY h.wake_at, h.lane ROWS UNBOUNDED PRECEDING)
      ) z WHERE z.k <= 16 OR z.before < p_limit
    ) y
  ) x;
  IF v_simple IS NOT TRUE THEN
    RETURN;
  END IF;
  PERFORM lock_runs(v_runs);
  FOR round IN 1 .. 2 LOOP
    v_good := ARRAY(SELECT id FROM lanes WHERE id = ANY (v_lanes) AND spacing = 0 AND max_in_flight = 0 AND parked = 0 AND greatest(next_at, held_until) <= v_now
                    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED);
    EXIT WHEN cardinality(v_good) > 0 OR round = 2;
    PERFORM lock_lanes(v_lanes);  -- others have them all, for a moment
    v_now := clock_micros(p_now);
  END LOOP;
  SELECT array_agg(r.tid), array_agg(r.n), NOT coalesce(bool_or(r.expires_at <= v_now OR r.mixed), false) INTO v_tids, v_from, v_simple
  FROM (
    SELECT r.*, u.n, u.mixed
    FROM (
      SELECT u.lane, u.count, u.n::integer,
             u.crossed AND (SELECT claim_band FROM ready WHERE lane = u.lane AND run = v_runs[1] AND needs = 0 ORDER BY claim_band LIMIT 1)
                        <> (SELECT claim_band FROM ready WHERE lane = u.lane AND run = v_runs[1] AND needs = 0 ORDER BY claim_band DESC LIMIT 1) AS mixed
      FROM unnest(v_lanes, v_counts, v_crossed) WITH ORDINALITY u(lane, count, crossed, n) WHERE u.lane = ANY (v_good) OFFSET 0
    ) u
    CROSS JOIN LATERAL (SELECT ctid AS tid, expires_at FROM ready WHERE lane = u.lane AND run = v_runs[1] AND needs = 0 AND claim_band >= 0 ORDER BY claim_band, due, id LIMIT u.count) r
    LIMIT p_limit
  ) r;
  PERFORM 1 FROM runs WHERE id = v_runs[1] AND state = 'running';
  IF NOT FOUND OR v_tids IS NULL OR NOT v_simple THEN
    RETURN;
  END IF;
  v_number := next_lease(v_now);
  INSERT INTO leases (number, worker, request, expires_at) VALUES (v_number, p_worker, p_request, v_now + p_lease);
  RETURN QUERY
    WITH moved AS (
      DELETE FROM ready r USING unnest(v_tids) u(tid) WHERE r.ctid = u.tid RETURNING r.*
    ), put AS (
      INSERT INTO leased SELECT id, run, lane, band, due, added_at, expires_at, returned_lease, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, history,
                                v_number, v_now, v_now, false FROM moved
      RETURNING id, lane, url, kind, priority, depth, parent, meta, request_options, auto_ack, needs, attempts, history, expires_at
    )
    SELECT put.id, v_number, l.name, put.url, put.kind, put.priority, put.depth, put.parent, put.meta, put.request_options, put.auto_ack, put.attempts, put.history, put.expires_at
    FROM put JOIN lanes l ON l.id = put.lane;
  WITH got AS (
    SELECT v_lanes[u.n] AS lane, count(*)::integer AS n FROM unnest(v_from) u(n) GROUP BY 1
  ), moved AS (
    UPDATE lanes l SET in_flight = l.in_flight + g.n, given = l.given + g.n, next_at = v_now FROM got g WHERE l.id = g.lane
  )
  UPDATE run_lanes h SET ready = h.ready - g.n, picks = h.picks + g.n, wake_at = CASE WHEN h.ready > g.n THEN v_now END
  FROM got g WHERE h.run = v_runs[1] AND h.lane = g.lane AND h.needs = 0;
  PERFORM add_counters(v_runs[1], p_ready => -cardinality(v_tids), p_leased => cardinality(v_tids));
END
$$;

-- The same for workers of the edition before, which take the columns as they come: these and no others.
CREATE FUNCTION claim_fast(p_now bigint, p_worker text, p_request text, p_lease bigint, p_serves text[], p_has text[], p_limit integer)
RETURNS TABLE (o_id bigint, o_lease bigint, o_name text, o_url text, o_kind text, o_priority bigint, o_depth integer, o_parent bigint,
               o_meta text, o_request_options text, o_auto_ack boolean, o_attempts integer, o_history text)
LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT o_id, o_lease, o_name, o_url, o_kind, o_priority, o_depth, o_parent, o_meta, o_request_options, o_auto_ack, o_attempts, o_history
  FROM claim_without_limits(p_now, p_worker, p_request, p_lease, p_serves, p_has, p_limit)
$$;
