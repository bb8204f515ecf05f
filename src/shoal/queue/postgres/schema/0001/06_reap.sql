-- Reap: what dead workers held goes back, and what nobody came for in time is ended.

-- p_workers are known to be dead; the tasks they were executing are (p_exec_workers, p_exec_tasks) and only those are charged.
CREATE FUNCTION reap_leases(p_now bigint, p_workers text[], p_exec_workers text[], p_exec_tasks bigint[], p_lost_limit integer, p_most integer,
                            OUT o_returned integer, OUT o_dead integer)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_now bigint := clock_micros(p_now);
  v_leases bigint[];
  v_runs integer[];
  v_lanes integer[];
  v_tasks bigint[];
  v record;
BEGIN
  o_returned := 0;
  o_dead := 0;
  PERFORM note_clock(v_now);
  v_leases := ARRAY(SELECT number FROM leases WHERE expires_at <= v_now ORDER BY expires_at LIMIT p_most);
  IF cardinality(p_workers) > 0 THEN
    v_leases := v_leases || ARRAY(SELECT number FROM leases WHERE worker = ANY (p_workers));
  END IF;
  IF cardinality(v_leases) = 0 THEN
    RETURN;
  END IF;
  SELECT array_agg(DISTINCT run), array_agg(DISTINCT lane) INTO v_runs, v_lanes FROM leased WHERE lease = ANY (v_leases);
  PERFORM lock_runs(v_runs);
  PERFORM lock_lanes(v_lanes);
  -- Again under the locks: a lease may have been extended or settled meanwhile.
  v_leases := ARRAY(SELECT number FROM leases WHERE number = ANY (v_leases) AND (expires_at <= v_now OR worker = ANY (p_workers)) ORDER BY number FOR UPDATE);
  -- What is just being settled is left alone: a settle has its tasks before it waits for the lanes, which are ours.
  v_tasks := ARRAY(SELECT id FROM leased WHERE lease = ANY (v_leases) AND lane = ANY (v_lanes) FOR UPDATE SKIP LOCKED);
  FOR v IN
    WITH gone AS (
      DELETE FROM leased t USING leases x
      WHERE t.id = ANY (v_tasks) AND x.number = t.lease
      RETURNING t.*, x.worker, CASE
        WHEN t.cancelled OR t.auto_ack THEN false
        WHEN x.worker = ANY (p_workers) THEN EXISTS (SELECT 1 FROM unnest(p_exec_workers, p_exec_tasks) e(worker, task) WHERE e.worker = x.worker AND e.task = t.id)
        ELSE x.started IS NULL OR t.id = ANY (x.started) END AS guilty
    ), lost AS MATERIALIZED (
      -- What is acknowledged by being handed out comes once at most.
      SELECT g.*, g.lost + g.guilty::integer AS charges, g.auto_ack OR g.lost + g.guilty::integer >= p_lost_limit AS is_over,
             CASE WHEN g.auto_ack THEN append_attempt(g.history, json_build_object('at', v_now, 'worker', g.worker, 'cause', 'unacknowledged',
               'message', 'its lease ended before it was settled, and it is handed out once at most')::text)
             WHEN g.guilty THEN append_attempt(g.history, json_build_object('at', v_now, 'worker', g.worker, 'cause', 'worker_lost',
               'message', 'the worker died or went silent while it held this task')::text) ELSE g.history END AS past
      FROM gone g WHERE NOT g.cancelled
    ), dead_lettered AS (
      INSERT INTO dead (id, lease, returned_lease, lane, band, ended_at, added_at, expires_at, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, cause, history)
      SELECT id, 0, returned_lease, lane, band, v_now, added_at, expires_at, attempts, charges, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs,
             CASE WHEN auto_ack THEN 'unacknowledged' ELSE 'worker_lost' END, past
      FROM lost WHERE is_over
    ), back AS (
      INSERT INTO ready (id, run, lane, claim_band, band, due, added_at, expires_at, returned_lease, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, history)
      SELECT id, run, lane, CASE WHEN charges > 0 THEN -1 ELSE band END, band, due, added_at, expires_at, returned_lease, attempts, charges, priority, depth, parent, digest,
             kind, url, meta, request_options, auto_ack, needs, past
      FROM lost WHERE NOT is_over
    ), kept AS (
      -- Of what was cancelled with its run nobody will bring the records any more: it waits if that is undone, or goes.
      INSERT INTO ready (id, run, lane, claim_band, band, due, added_at, expires_at, returned_lease, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, history)
      SELECT g.id, g.run, g.lane, CASE WHEN g.lost > 0 THEN -1 ELSE g.band END, g.band, g.due, g.added_at, g.expires_at, g.returned_lease, g.attempts, g.lost, g.priority, g.depth, g.parent, g.digest,
             g.kind, g.url, g.meta, g.request_options, g.auto_ack, g.needs, g.history
      FROM gone g JOIN runs r ON r.id = g.run AND r.undo_until > v_now WHERE g.cancelled AND NOT g.auto_ack
      RETURNING run, lane, needs
    ), kept_in_lanes AS (
      UPDATE run_lanes h SET kept = h.kept + c.n FROM (SELECT run, lane, needs, count(*) AS n FROM kept GROUP BY run, lane, needs) c WHERE h.run = c.run AND h.lane = c.lane AND h.needs = c.needs
    ), kept_in_runs AS (
      UPDATE runs r SET kept_ready = r.kept_ready + (SELECT count(*) FROM kept WHERE run = r.id), identity_only = r.identity_only OR r.undo_until <= v_now OR c.auto
      FROM (SELECT run, bool_or(auto_ack) AS auto FROM gone WHERE cancelled GROUP BY run) c WHERE r.id = c.run
    ), run_lanes_back AS (
      UPDATE run_lanes h SET ready = h.ready + c.n
      FROM (SELECT run, lane, needs, count(*) AS n FROM lost WHERE NOT is_over GROUP BY run, lane, needs) c WHERE h.run = c.run AND h.lane = c.lane AND h.needs = c.needs
    ), places_back AS (
      UPDATE lanes l SET in_flight = l.in_flight - c.n FROM (SELECT lane, count(*) AS n FROM lost GROUP BY lane) c WHERE l.id = c.lane
    )
    SELECT run, count(*) AS n, count(*) FILTER (WHERE is_over) AS dead, count(*) FILTER (WHERE guilty) AS lost FROM lost GROUP BY run ORDER BY run
  LOOP
    PERFORM add_counters(v.run, p_ready => v.n - v.dead, p_leased => -v.n, p_dead => v.dead, p_lost => v.lost);
    o_returned := o_returned + v.n - v.dead;
    o_dead := o_dead + v.dead;
  END LOOP;
  DELETE FROM leases x WHERE x.number = ANY (v_leases) AND NOT EXISTS (SELECT 1 FROM leased WHERE lease = x.number);
  PERFORM wake(v_lanes);
  IF o_returned > 0 THEN
    PERFORM notify_workers();
  END IF;
END
$$;

CREATE FUNCTION reap_expired(p_now bigint, p_most integer) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN expire_overdue(p_now, ARRAY(SELECT id FROM runs WHERE state IN ('running', 'paused')), p_most);
END
$$;

-- Waiting tasks of these runs whose time to live ran out are dead: how many.
CREATE FUNCTION expire_overdue(p_now bigint, p_runs integer[], p_most integer) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := clock_micros(p_now);
  v_runs integer[] := ARRAY(SELECT id FROM runs WHERE id = ANY (p_runs) AND state IN ('running', 'paused'));
  v_over bigint[];
BEGIN
  v_over := ARRAY(
    SELECT id FROM (
      (SELECT t.id FROM unnest(v_runs) u(run) CROSS JOIN LATERAL (SELECT id FROM ready WHERE run = u.run AND expires_at <= v_now ORDER BY expires_at LIMIT p_most) t LIMIT p_most)
      UNION ALL
      (SELECT t.id FROM unnest(v_runs) u(run) CROSS JOIN LATERAL (SELECT id FROM delayed WHERE run = u.run AND expires_at <= v_now ORDER BY expires_at LIMIT p_most) t LIMIT p_most)) x
    LIMIT p_most);
  IF cardinality(v_over) = 0 THEN
    RETURN 0;
  END IF;
  RETURN expire(p_now, v_over);
END
$$;

-- Dead letters whose retention is over are removed, so many at most: how many.
CREATE FUNCTION discard_dead(p_now bigint, p_most integer) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := clock_micros(p_now);
  v_tasks bigint[];
  v record;
  v_total integer := 0;
BEGIN
  v_tasks := ARRAY(
    SELECT d.id FROM (SELECT id, dead_retention FROM runs WHERE dead_retention > 0) r
    CROSS JOIN LATERAL (SELECT id FROM dead WHERE id >> 32 = r.id AND ended_at <= v_now - r.dead_retention ORDER BY ended_at LIMIT p_most) d LIMIT p_most);
  IF cardinality(v_tasks) = 0 THEN
    RETURN 0;
  END IF;
  PERFORM lock_runs(ARRAY(SELECT DISTINCT (t >> 32)::integer FROM unnest(v_tasks) t));
  PERFORM lock_lanes(ARRAY(SELECT DISTINCT lane FROM dead WHERE id = ANY (v_tasks)));
  FOR v IN
    WITH gone AS (
      -- One that was revived while we waited, and died again, has its time before it.
      DELETE FROM dead d USING runs r WHERE d.id = ANY (v_tasks) AND r.id = d.id >> 32 AND d.ended_at <= v_now - r.dead_retention RETURNING d.id
    ), kept AS (
      INSERT INTO discarded SELECT id FROM gone
    )
    SELECT (id >> 32)::integer AS run, count(*) AS n FROM gone GROUP BY 1 ORDER BY 1
  LOOP
    PERFORM add_counters(v.run, p_dead => -v.n, p_discarded => v.n);
    v_total := v_total + v.n;
  END LOOP;
  RETURN v_total;
END
$$;

-- Runs that reached their page limit end; a slice goes of what was cancelled with its run and is kept no longer.
-- Answers: runs some of whose lanes have not noticed yet that they ended, or began again.
CREATE FUNCTION sweep_leftovers(p_now bigint, p_slice integer) RETURNS integer[] LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v record;
BEGIN
  FOR v IN SELECT id FROM runs WHERE state IN ('running', 'paused') AND max_pages > 0 ORDER BY id LOOP
    PERFORM pg_advisory_xact_lock(lock_namespace(), v.id);
    PERFORM stop_at_limit(clock_micros(p_now), v.id);
  END LOOP;
  FOR v IN SELECT id FROM runs WHERE leftovers AND undo_until <= clock_micros(p_now) ORDER BY undo_until LIMIT 5 LOOP
    CONTINUE WHEN NOT pg_try_advisory_xact_lock(lock_namespace(), v.id);
    UPDATE runs SET undo_until = 0, kept_ready = 0, kept_delayed = 0, identity_only = true WHERE id = v.id AND leftovers AND undo_until <= clock_micros(p_now);
    CONTINUE WHEN NOT FOUND;
    IF clear_waiting(v.id, p_slice) = 0 THEN
      UPDATE runs SET leftovers = false WHERE id = v.id;
    END IF;
  END LOOP;
  RETURN ARRAY(SELECT id FROM runs WHERE lane_cursor >= 0 ORDER BY id LIMIT 5);
END
$$;

-- Heartbeat. p_numbers with the tasks started by now, flat as (p_of, p_tasks). Answers per lease: alive, cancelled tasks.
CREATE FUNCTION extend(p_now bigint, p_worker text, p_lease bigint, p_numbers bigint[], p_of bigint[], p_tasks bigint[])
RETURNS TABLE (o_number bigint, o_cancelled bigint[]) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := clock_micros(p_now);
BEGIN
  PERFORM relax_durability();
  PERFORM 1 FROM leases WHERE number = ANY (p_numbers) ORDER BY number FOR NO KEY UPDATE;
  RETURN QUERY
    UPDATE leases x SET expires_at = greatest(x.expires_at, v_now + p_lease),
                        -- What is said to be cancelled is executed by nobody from here on.
                        started = ARRAY(SELECT s.task FROM unnest(p_of, p_tasks) s(number, task) WHERE s.number = x.number
                                          AND NOT EXISTS (SELECT 1 FROM leased t WHERE t.id = s.task AND t.cancelled))
    WHERE x.number = ANY (p_numbers) AND x.worker = p_worker AND x.expires_at > v_now
    RETURNING x.number, ARRAY(SELECT id FROM leased t WHERE t.lease = x.number AND t.cancelled);
END
$$;

-- Lanes that nothing refers to any more, of some that are looked at. A run that has a row of history in a lane has a run_lane
-- there, until it is removed itself.
CREATE FUNCTION remove_idle_lanes(p_now bigint, p_kept bigint, p_most integer) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_before bigint := clock_micros(p_now) - p_kept;
  v_first integer := (random() * (SELECT coalesce(max(id), 0) FROM lanes))::integer;
  v_lanes integer[];
BEGIN
  v_lanes := ARRAY(
    SELECT id FROM (
      (SELECT * FROM lanes WHERE id >= v_first ORDER BY id LIMIT p_most) UNION (SELECT * FROM lanes ORDER BY id LIMIT p_most)) l
    WHERE in_flight = 0 AND learned = 0 AND parked = 0 AND spacing_override < 0 AND limit_override < 0 AND greatest(next_at, held_until) <= v_before
      AND NOT EXISTS (SELECT 1 FROM run_lanes h WHERE h.lane = l.id));
  IF cardinality(v_lanes) > 0 THEN
    v_lanes := ARRAY(SELECT id FROM lanes WHERE id = ANY (v_lanes) ORDER BY id FOR UPDATE SKIP LOCKED);
    -- Again, now that nobody else can come to them.
    DELETE FROM lanes l WHERE id = ANY (v_lanes) AND learned = 0 AND parked = 0 AND spacing_override < 0 AND limit_override < 0
      AND greatest(next_at, held_until) <= v_before AND NOT EXISTS (SELECT 1 FROM run_lanes h WHERE h.lane = l.id);
  END IF;
END
$$;
