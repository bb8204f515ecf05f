-- Accounts of many runs in one go, and steps of bounded size where a run is revived or removed.

-- What could be handed out is counted in the hosts that are due, exactly where these are few. Of more a part is looked
-- at and the others are taken to be like it: the smaller a part, the more runs are asked for at once.
CREATE FUNCTION stats_of(p_now bigint, p_runs integer[], p_horizon bigint) RETURNS SETOF json LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_now bigint := clock_micros(p_now);
  v_part integer := greatest(4, least(200, 2500 / greatest(1, cardinality(p_runs))));
  v_most integer := greatest(200, least(20000, 100000 / greatest(1, cardinality(p_runs))));
BEGIN
  RETURN QUERY
    WITH selected AS MATERIALIZED (
      SELECT r.id, CASE WHEN r.outbox_full THEN 'waiting' ELSE r.state END AS state, r.max_pages FROM runs r WHERE r.id = ANY (p_runs)
    ), account AS MATERIALIZED (
      SELECT c.run, sum(c.seen)::bigint AS seen, sum(c.ready)::bigint AS ready, sum(c.delayed)::bigint AS delayed, sum(c.leased)::bigint AS leased,
             sum(c.done)::bigint AS done, sum(c.dead)::bigint AS dead, sum(c.cancelled)::bigint AS cancelled, sum(c.records)::bigint AS records,
             sum(c.retries)::bigint AS retries, sum(c.lost)::bigint AS lost, sum(c.stale)::bigint AS stale, sum(c.bytes)::bigint AS bytes,
             sum(c.trimmed)::bigint AS trimmed, sum(c.discarded)::bigint AS discarded, sum(c.aside)::bigint AS aside, sum(c.outbox)::bigint AS outbox
      FROM counters c WHERE c.run = ANY (p_runs) GROUP BY c.run
    ), due_delayed AS MATERIALIZED (
      -- Delayed tasks whose time has come and that no claim has promoted yet.
      SELECT a.run, d.lane, d.needs, count(*)::integer AS n
      FROM account a CROSS JOIN LATERAL (SELECT delayed.lane, delayed.needs FROM delayed WHERE delayed.run = a.run AND delayed.due <= v_now LIMIT 10000) d
      WHERE a.delayed > 0 GROUP BY a.run, d.lane, d.needs
    ), kinds AS MATERIALIZED (
      -- What waits in a lane is in several rows where some of it has needs.
      SELECT s.id AS run, s.state, 0::smallint AS needs, 0::bigint AS ready, '' AS names FROM selected s
      UNION ALL SELECT s.id, s.state, n.needs, (SELECT coalesce(sum(c.ready), 0)::bigint FROM needs_counters c WHERE c.run = n.run AND c.needs = n.needs), array_to_string(n.names, '+')
      FROM selected s JOIN run_needs n ON n.run = s.id
    ), due AS MATERIALIZED (
      SELECT x.*, count(*) OVER (PARTITION BY x.run) >= v_part AS more
      FROM (SELECT k.run, h.lane, k.needs, h.ready
            FROM kinds k CROSS JOIN LATERAL (SELECT lane, ready FROM run_lanes WHERE run + 0 = k.run AND needs = k.needs AND wake_at <= v_now LIMIT v_part) h
            WHERE k.state = 'running') x
    ), whole AS MATERIALIZED (
      SELECT d.run, d.part, greatest(d.part, (SELECT sum(o.n) FROM kinds k CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
               SELECT 1 FROM run_lanes WHERE run + 0 = k.run AND needs = k.needs AND wake_at <= v_now LIMIT v_most) h) o WHERE k.run = d.run)) AS n
      FROM (SELECT run, count(*) AS part FROM due WHERE more GROUP BY run) d
    ), looked AS MATERIALIZED (
      SELECT z.run, z.lane, sum(z.waiting) AS waiting
      FROM (SELECT k.run, k.lane, k.needs, max(k.ready) + max(k.n) AS waiting
            FROM (SELECT run, lane, needs, ready, 0 AS n FROM due
                  UNION ALL SELECT d.run, d.lane, d.needs, coalesce(h.ready, 0), d.n FROM due_delayed d
                            LEFT JOIN run_lanes h ON h.run = d.run AND h.lane = d.lane AND h.needs = d.needs
                  -- Of a lane that delayed tasks come back to, what else is ready counts, too.
                  UNION ALL SELECT h.run, h.lane, h.needs, h.ready, 0 FROM (SELECT DISTINCT run, lane FROM due_delayed) d JOIN run_lanes h ON h.run = d.run AND h.lane = d.lane) k
            GROUP BY k.run, k.lane, k.needs) z
      GROUP BY z.run, z.lane
    ), room AS MATERIALIZED (
      SELECT k.run, sum(greatest(0, least(k.waiting, CASE WHEN l.spacing > 0 THEN p_horizon / l.spacing + 1 END,
               CASE WHEN l.parked > 0 THEN 1 - l.in_flight WHEN l.max_in_flight > 0 THEN l.max_in_flight - l.in_flight END)))::numeric AS n
      FROM looked k JOIN lanes l ON l.id = k.lane WHERE greatest(l.next_at, l.held_until) <= v_now GROUP BY k.run
    ), late AS MATERIALIZED (
      SELECT due_delayed.run, sum(due_delayed.n)::bigint AS n FROM due_delayed GROUP BY due_delayed.run
    ), needed AS MATERIALIZED (
      SELECT n.run, json_object_agg(n.names, n.ready) AS told
      FROM (SELECT k.run, k.names, k.ready + coalesce((SELECT sum(d.n) FROM due_delayed d WHERE d.run = k.run AND d.needs = k.needs), 0) AS ready FROM kinds k WHERE k.needs > 0) n
      WHERE n.ready > 0 GROUP BY n.run
    ), refused AS MATERIALIZED (
      SELECT s.run, json_object_agg(s.reason, s.n) AS told
      FROM (SELECT run, reason, sum(count) AS n FROM skips WHERE run = ANY (p_runs) GROUP BY run, reason) s GROUP BY s.run
    ), told AS MATERIALIZED (
      SELECT selected.id, json_build_object(
        'seen', coalesce(a.seen, 0), 'ready', coalesce(a.ready, 0),
        'delayed', coalesce(a.delayed, 0) - coalesce(late.n, 0), 'leased', coalesce(a.leased, 0),
        'done', coalesce(a.done, 0), 'dead', coalesce(a.dead, 0), 'cancelled', coalesce(a.cancelled, 0), 'records', coalesce(a.records, 0),
        'retries', coalesce(a.retries, 0), 'lost', coalesce(a.lost, 0), 'stale', coalesce(a.stale, 0), 'bytes', coalesce(a.bytes, 0),
        'trimmed', coalesce(a.trimmed, 0), 'discarded', coalesce(a.discarded, 0), 'aside', coalesce(a.aside, 0), 'outbox', coalesce(a.outbox, 0),
        'claimable', CASE WHEN selected.state = 'running' THEN greatest(0, least(
          CASE WHEN whole.n > whole.part THEN least(floor(room.n * whole.n / whole.part), a.ready) ELSE coalesce(room.n, 0) END,
          CASE WHEN selected.max_pages > 0 THEN selected.max_pages - coalesce(a.done + a.dead + a.discarded + a.leased - a.aside, 0) END)) ELSE 0 END,
        'skipped', coalesce(refused.told, '{}'), 'needs', coalesce(needed.told, '{}')) AS account
      FROM selected LEFT JOIN account a ON a.run = selected.id LEFT JOIN room ON room.run = selected.id LEFT JOIN whole ON whole.run = selected.id
      LEFT JOIN late ON late.run = selected.id LEFT JOIN refused ON refused.run = selected.id LEFT JOIN needed ON needed.run = selected.id
    )
    SELECT told.account FROM unnest(p_runs) WITH ORDINALITY u(run, n) LEFT JOIN told ON told.id = u.run ORDER BY u.n;
END
$$;

CREATE FUNCTION stats(p_now bigint, p_run integer, p_horizon bigint) RETURNS json LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT stats_of(p_now, ARRAY[p_run], p_horizon)
$$;

-- The hosts with the most work that is ready, over all runs that have not ended.
CREATE FUNCTION busiest(p_limit integer) RETURNS TABLE (o_lane integer, o_ready bigint) LANGUAGE plpgsql STABLE ROWS 100
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
  RETURN QUERY
    SELECT h.lane, sum(h.ready)::bigint FROM run_lanes h
    WHERE h.run + 0 = ANY (ARRAY(SELECT id FROM runs WHERE state IN ('running', 'paused'))) AND h.ready > 0
    GROUP BY h.lane ORDER BY 2 DESC, 1 LIMIT p_limit;
END
$$;

-- Dead letters start over, with their past kept for people but not held against them: how many did. Below 0: a slice of
-- what the page limit of its run had cancelled and is kept no longer went first, or tidying would take the revived for
-- leftovers; ask again.
CREATE FUNCTION revive(p_now bigint, p_run integer, p_tasks bigint[], p_message text) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint;
  v runs;
  v_lanes integer[];
  v_count bigint;
  v_mark text;
BEGIN
  PERFORM pg_advisory_xact_lock(lock_namespace(), p_run);
  v_now := clock_micros(p_now);
  v_mark := json_build_object('at', v_now, 'worker', '', 'cause', 'revived', 'message', p_message)::text;
  SELECT * INTO v FROM runs WHERE id = p_run;
  PERFORM 1 FROM dead WHERE id = ANY (p_tasks) LIMIT 1;
  IF NOT FOUND OR v.state = 'cancelled' THEN
    RETURN 0;
  END IF;
  IF v.state = 'finished' AND v.leftovers AND v.undo_until <= v_now AND clear_waiting(p_run, 5000) > 0 THEN
    UPDATE runs SET undo_until = 0, kept_ready = 0, kept_delayed = 0, identity_only = true WHERE id = p_run;
    RETURN -1;
  END IF;
  v_lanes := ARRAY(SELECT DISTINCT lane FROM dead WHERE id = ANY (p_tasks));
  IF v.state = 'finished' THEN
    -- One that begins again asks something of all its lanes; all that are needed are locked in one go.
    PERFORM lock_lanes(v_lanes || lanes_if_few(p_run) || ARRAY(SELECT DISTINCT lane FROM leased WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32));
    IF v.undo_until > v_now THEN
      PERFORM bring_back(v_now, v);
    END IF;
    UPDATE runs SET state = 'running', finished_at = 0, changed_at = v_now, leftovers = false WHERE id = p_run;
    PERFORM begin_moving(p_run);
  ELSE
    PERFORM lock_lanes(v_lanes);
  END IF;
  DELETE FROM failing WHERE key IN (SELECT failure_key(url, request_options) FROM dead WHERE id = ANY (p_tasks));
  WITH gone AS (
    DELETE FROM dead WHERE id = ANY (p_tasks) AND lane = ANY (v_lanes) RETURNING *
  ), back AS (
    INSERT INTO ready (id, run, lane, claim_band, band, due, added_at, expires_at, returned_lease, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, history)
    SELECT id, p_run, lane, CASE WHEN v.max_pages > 0 THEN 0 ELSE band END, CASE WHEN v.max_pages > 0 THEN 0 ELSE band END, v_now, v_now, v_now + expires_at - added_at, lease, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, append_attempt(history, v_mark)
    FROM gone
  ), counted AS (
    UPDATE run_lanes h SET ready = h.ready + c.n FROM (SELECT lane, needs, count(*) AS n FROM gone GROUP BY lane, needs) c WHERE h.run = p_run AND h.lane = c.lane AND h.needs = c.needs
  )
  SELECT count(*) INTO v_count FROM gone;
  PERFORM add_counters(p_run, p_dead => -v_count, p_ready => v_count);
  -- They were handed out once already: the page limit makes room for them again. They come first, or what was left would take it.
  UPDATE runs SET bands = bands | 1, max_pages = greatest(max_pages, (SELECT sum(done + dead + discarded + leased - aside) + v_count FROM counters WHERE run = p_run)) WHERE id = p_run AND max_pages > 0;
  PERFORM wake(v_lanes);
  PERFORM notify_workers();
  RETURN v_count;
END
$$;

-- A slice of what an ended run still has waiting: how many went, and what lanes keep of it last. The caller has the run alone.
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
  v_total := v_total + v_gone;
  -- Lanes that have not noticed yet that it ended have something to keep later.
  IF v_total = 0 AND EXISTS (SELECT 1 FROM runs WHERE id = p_run AND lane_cursor >= 0) THEN
    PERFORM move_lanes(p_run, x.lanes) FROM (
      SELECT ARRAY(SELECT DISTINCT h.lane FROM run_lanes h JOIN runs r ON r.id = h.run WHERE h.run + 0 = p_run AND h.lane > r.lane_cursor ORDER BY h.lane LIMIT p_slice) AS lanes) x;
    UPDATE runs r SET lane_cursor = coalesce((SELECT max(l) FROM (
      SELECT DISTINCT h.lane AS l FROM run_lanes h WHERE h.run + 0 = p_run AND h.lane > r.lane_cursor ORDER BY 1 LIMIT p_slice) x), -1) WHERE id = p_run;
    RETURN 1;
  END IF;
  IF v_total = 0 THEN
    UPDATE run_lanes SET kept = 0 WHERE ctid = ANY (ARRAY(SELECT ctid FROM run_lanes WHERE run + 0 = p_run AND kept <> 0 LIMIT p_slice));
    GET DIAGNOSTICS v_total = ROW_COUNT;
  END IF;
  RETURN v_total;
END
$$;

-- A slice of the live tasks and dead letters of an ended run that is to go: how many went.
CREATE FUNCTION purge_slice(p_run integer, p_slice integer) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_tasks bigint[];
  v_lanes integer[];
  v_gone integer;
  v_count integer;
BEGIN
  PERFORM pg_advisory_xact_lock(lock_namespace(), p_run);
  -- It loses some now: nobody shall bring the rest back.
  UPDATE runs SET state = 'cancelled', undo_until = 0 WHERE id = p_run AND state IN ('finished', 'cancelled');
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  v_tasks := ARRAY(SELECT id FROM dead WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 LIMIT p_slice);
  PERFORM lock_lanes(ARRAY(SELECT DISTINCT lane FROM dead WHERE id = ANY (v_tasks)));
  DELETE FROM dead WHERE id = ANY (v_tasks);
  GET DIAGNOSTICS v_gone = ROW_COUNT;
  DELETE FROM discarded WHERE id = ANY (ARRAY(SELECT id FROM discarded WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 LIMIT p_slice));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  v_gone := v_gone + v_count;
  DELETE FROM page_states WHERE id = ANY (ARRAY(SELECT id FROM page_states WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 LIMIT p_slice));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  v_gone := v_gone + v_count;
  v_gone := v_gone + clear_waiting(p_run, p_slice);
  IF v_gone > 0 THEN
    RETURN v_gone;
  END IF;
  v_lanes := ARRAY(SELECT DISTINCT lane FROM (SELECT lane FROM run_lanes WHERE run + 0 = p_run LIMIT 100) x);
  PERFORM lock_lanes(v_lanes);
  DELETE FROM run_lanes WHERE lane = ANY (v_lanes) AND run = p_run;
  GET DIAGNOSTICS v_gone = ROW_COUNT;
  RETURN v_gone;
END
$$;
