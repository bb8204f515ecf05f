-- Accounts of many runs in one go, and steps of bounded size where a run is revived or removed.

-- What could be handed out is counted in the hosts that are due, exactly where these are few. Of more a part is looked
-- at and the others are taken to be like it: the smaller a part, the more runs are asked for at once.
CREATE OR REPLACE FUNCTION stats_of(p_now bigint, p_runs integer[], p_horizon bigint) RETURNS SETOF json LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_now bigint := tick(p_now);
  v_part integer := greatest(4, least(200, 2500 / greatest(1, cardinality(p_runs))));
  v_most integer := greatest(200, least(20000, 100000 / greatest(1, cardinality(p_runs))));
BEGIN
  RETURN QUERY
    WITH asked AS MATERIALIZED (
      SELECT r.id, r.state, r.max_pages FROM runs r WHERE r.id = ANY (p_runs)
    ), account AS MATERIALIZED (
      SELECT c.run, sum(c.seen)::bigint AS seen, sum(c.ready)::bigint AS ready, sum(c.delayed)::bigint AS delayed, sum(c.leased)::bigint AS leased,
             sum(c.done)::bigint AS done, sum(c.dead)::bigint AS dead, sum(c.cancelled)::bigint AS cancelled, sum(c.records)::bigint AS records,
             sum(c.retries)::bigint AS retries, sum(c.lost)::bigint AS lost, sum(c.stale)::bigint AS stale, sum(c.bytes)::bigint AS bytes,
             sum(c.trimmed)::bigint AS trimmed
      FROM counters c WHERE c.run = ANY (p_runs) GROUP BY c.run
    ), ripe AS MATERIALIZED (
      -- Delayed tasks whose time has come and that no claim has promoted yet.
      SELECT d.run, d.lane, count(*)::integer AS n
      FROM (SELECT run, lane FROM delayed WHERE due <= v_now AND EXISTS (SELECT 1 FROM account WHERE delayed > 0) LIMIT 10000) d
      WHERE d.run IN (SELECT run FROM account WHERE delayed > 0) GROUP BY d.run, d.lane
    ), due AS MATERIALIZED (
      SELECT a.id AS run, h.lane, h.ready, count(*) OVER (PARTITION BY a.id) = v_part AS more
      FROM asked a CROSS JOIN LATERAL (SELECT lane, ready FROM heads WHERE run = a.id AND wake_at <= v_now LIMIT v_part) h
      WHERE a.state = 'running'
    ), whole AS MATERIALIZED (
      SELECT d.run, greatest(v_part, (SELECT count(*) FROM (SELECT 1 FROM heads WHERE run = d.run AND wake_at <= v_now LIMIT v_most) h)) AS n
      FROM (SELECT run FROM due WHERE more GROUP BY run) d
    ), looked AS MATERIALIZED (
      SELECT k.run, k.lane, max(k.ready) + max(k.n) AS waiting
      FROM (SELECT run, lane, ready, 0 AS n FROM due
            UNION ALL SELECT ripe.run, ripe.lane, h.ready, ripe.n FROM ripe JOIN heads h ON h.run = ripe.run AND h.lane = ripe.lane) k
      GROUP BY k.run, k.lane
    ), room AS MATERIALIZED (
      SELECT k.run, sum(greatest(0, least(k.waiting, CASE WHEN l.spacing > 0 THEN p_horizon / l.spacing + 1 END,
               CASE WHEN l.parked > 0 THEN 1 - l.in_flight WHEN l.max_in_flight > 0 THEN l.max_in_flight - l.in_flight END)))::numeric AS n
      FROM looked k JOIN lanes l ON l.id = k.lane WHERE greatest(l.next_at, l.held_until) <= v_now GROUP BY k.run
    ), late AS MATERIALIZED (
      SELECT ripe.run, sum(ripe.n)::bigint AS n FROM ripe GROUP BY ripe.run
    ), refused AS MATERIALIZED (
      SELECT s.run, json_object_agg(s.reason, s.n) AS told
      FROM (SELECT run, reason, sum(count) AS n FROM skips WHERE run = ANY (p_runs) GROUP BY run, reason) s GROUP BY s.run
    ), told AS MATERIALIZED (
      SELECT asked.id, json_build_object(
        'seen', coalesce(a.seen, 0), 'ready', coalesce(a.ready, 0),
        'delayed', coalesce(a.delayed, 0) - coalesce(late.n, 0), 'leased', coalesce(a.leased, 0),
        'done', coalesce(a.done, 0), 'dead', coalesce(a.dead, 0), 'cancelled', coalesce(a.cancelled, 0), 'records', coalesce(a.records, 0),
        'retries', coalesce(a.retries, 0), 'lost', coalesce(a.lost, 0), 'stale', coalesce(a.stale, 0), 'bytes', coalesce(a.bytes, 0),
        'trimmed', coalesce(a.trimmed, 0),
        'claimable', CASE WHEN asked.state = 'running' THEN greatest(0, least(
          CASE WHEN whole.n > v_part THEN least(floor(room.n * whole.n / v_part), a.ready) ELSE coalesce(room.n, 0) END,
          CASE WHEN asked.max_pages > 0 THEN asked.max_pages - coalesce(a.done + a.dead + a.leased, 0) END)) ELSE 0 END,
        'skipped', coalesce(refused.told, '{}')) AS account
      FROM asked LEFT JOIN account a ON a.run = asked.id LEFT JOIN room ON room.run = asked.id LEFT JOIN whole ON whole.run = asked.id
      LEFT JOIN late ON late.run = asked.id LEFT JOIN refused ON refused.run = asked.id
    )
    SELECT told.account FROM unnest(p_runs) WITH ORDINALITY u(run, n) LEFT JOIN told ON told.id = u.run ORDER BY u.n;
END
$$;

CREATE OR REPLACE FUNCTION stats(p_now bigint, p_run integer, p_horizon bigint) RETURNS json LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT stats_of(p_now, ARRAY[p_run], p_horizon)
$$;

-- The hosts with the most work that is ready, over all runs that have not ended.
CREATE FUNCTION busiest(p_limit integer) RETURNS TABLE (o_lane integer, o_ready bigint) LANGUAGE plpgsql STABLE ROWS 100
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
  RETURN QUERY
    SELECT h.lane, sum(h.ready)::bigint FROM heads h
    WHERE h.run = ANY (ARRAY(SELECT id FROM runs WHERE state IN ('running', 'paused'))) AND h.ready > 0
    GROUP BY h.lane ORDER BY 2 DESC, 1 LIMIT p_limit;
END
$$;

-- Dead letters start over, with their past kept for people but not held against them: how many did. Below 0: a slice of
-- what the page limit of its run had cancelled went first, or tidying would take the revived for leftovers; ask again.
CREATE OR REPLACE FUNCTION revive(p_now bigint, p_run integer, p_tasks bigint[], p_message text) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint;
  v_state text;
  v_left boolean;
  v_lanes integer[];
  v_count bigint;
  v_mark text;
BEGIN
  PERFORM pg_advisory_xact_lock(place(), p_run);
  v_now := tick(p_now);
  v_mark := json_build_object('at', v_now, 'worker', '', 'cause', 'revived', 'message', p_message)::text;
  SELECT state, leftovers INTO v_state, v_left FROM runs WHERE id = p_run;
  PERFORM 1 FROM dead WHERE id = ANY (p_tasks) LIMIT 1;
  IF NOT FOUND OR v_state = 'cancelled' THEN
    RETURN 0;
  END IF;
  IF v_state = 'finished' AND v_left AND clear_waiting(p_run, 5000) > 0 THEN
    RETURN -1;
  END IF;
  -- One that begins again asks something of all its lanes.
  v_lanes := CASE v_state WHEN 'finished' THEN ARRAY(SELECT lane FROM heads WHERE run = p_run) ELSE ARRAY(SELECT DISTINCT lane FROM dead WHERE id = ANY (p_tasks)) END;
  PERFORM lock_lanes(v_lanes);
  IF v_state = 'finished' THEN
    UPDATE runs SET state = 'running', finished_at = 0, changed_at = v_now, leftovers = false WHERE id = p_run;
  END IF;
  WITH gone AS (
    DELETE FROM dead WHERE id = ANY (p_tasks) AND lane = ANY (v_lanes) RETURNING *
  ), back AS (
    INSERT INTO ready (id, run, lane, turn, band, due, added_at, expires_at, gave_back, priority, depth, parent, digest, kind, url, meta, ask, history)
    SELECT id, p_run, lane, band, band, v_now, v_now, v_now + expires_at - added_at, lease, priority, depth, parent, digest, kind, url, meta, ask, grown(history, v_mark)
    FROM gone
  ), counted AS (
    UPDATE heads h SET ready = h.ready + c.n FROM (SELECT lane, count(*) AS n FROM gone GROUP BY lane) c WHERE h.run = p_run AND h.lane = c.lane
  )
  SELECT count(*) INTO v_count FROM gone;
  PERFORM tally(p_run, p_dead => -v_count, p_ready => v_count);
  -- They were handed out once already: the page limit makes room for them again.
  UPDATE runs SET max_pages = greatest(max_pages, (SELECT sum(done + dead + leased) + v_count FROM counters WHERE run = p_run)) WHERE id = p_run AND max_pages > 0;
  IF v_state = 'finished' THEN
    PERFORM settle_pace(v_lanes);
  END IF;
  PERFORM wake(v_lanes);
  PERFORM ring();
  RETURN v_count;
END
$$;

-- A slice of what an ended run still has waiting: how many went. The caller has the run alone.
CREATE FUNCTION clear_waiting(p_run integer, p_slice integer) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_total integer;
  v_gone integer;
BEGIN
  DELETE FROM ready WHERE id = ANY (ARRAY(SELECT id FROM ready WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 LIMIT p_slice));
  GET DIAGNOSTICS v_total = ROW_COUNT;
  DELETE FROM delayed WHERE id = ANY (ARRAY(SELECT id FROM delayed WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 LIMIT p_slice));
  GET DIAGNOSTICS v_gone = ROW_COUNT;
  RETURN v_total + v_gone;
END
$$;

-- A slice of the live tasks and dead letters of an ended run that is to go: how many went.
CREATE FUNCTION purge_slice(p_run integer, p_slice integer) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_tasks bigint[];
  v_gone integer;
BEGIN
  PERFORM pg_advisory_xact_lock(place(), p_run);
  -- It loses some now: nobody shall revive the rest.
  UPDATE runs SET state = 'cancelled' WHERE id = p_run AND state IN ('finished', 'cancelled');
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  v_tasks := ARRAY(SELECT id FROM dead WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 LIMIT p_slice);
  PERFORM lock_lanes(ARRAY(SELECT DISTINCT lane FROM dead WHERE id = ANY (v_tasks)));
  DELETE FROM dead WHERE id = ANY (v_tasks);
  GET DIAGNOSTICS v_gone = ROW_COUNT;
  RETURN v_gone + clear_waiting(p_run, p_slice);
END
$$;
