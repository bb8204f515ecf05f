-- Reap: what dead workers held goes back, and what nobody came for in time is ended.

-- p_workers are known to be dead; the tasks they were executing are (p_exec_workers, p_exec_tasks) and only those are charged.
CREATE FUNCTION reap_leases(p_now bigint, p_workers text[], p_exec_workers text[], p_exec_tasks bigint[], p_lost_limit integer, p_most integer,
                            OUT o_returned integer, OUT o_dead integer)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_now bigint := tick(p_now);
  v_leases bigint[];
  v_runs integer[];
  v_lanes integer[];
  v record;
BEGIN
  o_returned := 0;
  o_dead := 0;
  PERFORM note_time(v_now);
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
  FOR v IN
    WITH gone AS (
      DELETE FROM leased t USING leases x
      WHERE t.lease = ANY (v_leases) AND x.number = t.lease AND t.lane = ANY (v_lanes)
      RETURNING t.*, x.worker, CASE
        WHEN t.cancelled THEN false
        WHEN x.worker = ANY (p_workers) THEN EXISTS (SELECT 1 FROM unnest(p_exec_workers, p_exec_tasks) e(worker, task) WHERE e.worker = x.worker AND e.task = t.id)
        ELSE x.started IS NULL OR t.id = ANY (x.started) END AS guilty
    ), lost AS MATERIALIZED (
      -- What was cancelled with its run just goes: nobody will bring its records any more.
      SELECT g.*, g.lost + g.guilty::integer AS charges, g.lost + g.guilty::integer >= p_lost_limit AS is_over,
             CASE WHEN g.guilty THEN grown(g.history, json_build_object('at', v_now, 'worker', g.worker, 'cause', 'worker_lost',
               'message', 'the worker died or fell silent while it held this task')::text) ELSE g.history END AS past
      FROM gone g WHERE NOT g.cancelled
    ), buried AS (
      INSERT INTO dead (id, lease, gave_back, lane, band, ended_at, added_at, expires_at, attempts, lost, priority, depth, parent, digest, kind, url, meta, ask, cause, history)
      SELECT id, 0, gave_back, lane, band, v_now, added_at, expires_at, attempts, charges, priority, depth, parent, digest, kind, url, meta, ask, 'worker_lost', past
      FROM lost WHERE is_over
    ), back AS (
      INSERT INTO ready (id, run, lane, turn, band, due, added_at, expires_at, gave_back, attempts, lost, priority, depth, parent, digest, kind, url, meta, ask, history)
      SELECT id, run, lane, CASE WHEN charges > 0 THEN -1 ELSE band END, band, due, added_at, expires_at, gave_back, attempts, charges, priority, depth, parent, digest,
             kind, url, meta, ask, past
      FROM lost WHERE NOT is_over
    ), heads_back AS (
      UPDATE heads h SET ready = h.ready + c.n
      FROM (SELECT run, lane, count(*) AS n FROM lost WHERE NOT is_over GROUP BY run, lane) c WHERE h.run = c.run AND h.lane = c.lane
    ), places_back AS (
      UPDATE lanes l SET in_flight = l.in_flight - c.n FROM (SELECT lane, count(*) AS n FROM lost GROUP BY lane) c WHERE l.id = c.lane
    )
    SELECT run, count(*) AS n, count(*) FILTER (WHERE is_over) AS dead, count(*) FILTER (WHERE guilty) AS lost FROM lost GROUP BY run ORDER BY run
  LOOP
    PERFORM tally(v.run, p_ready => v.n - v.dead, p_leased => -v.n, p_dead => v.dead, p_lost => v.lost);
    o_returned := o_returned + v.n - v.dead;
    o_dead := o_dead + v.dead;
  END LOOP;
  DELETE FROM leases x WHERE x.number = ANY (v_leases) AND NOT EXISTS (SELECT 1 FROM leased WHERE lease = x.number);
  PERFORM wake(v_lanes);
  IF o_returned > 0 THEN
    PERFORM ring();
  END IF;
END
$$;

CREATE FUNCTION reap_expired(p_now bigint, p_most integer) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := tick(p_now);
  v_over bigint[];
BEGIN
  v_over := ARRAY(
    SELECT id FROM (
      (SELECT t.id FROM ready t JOIN runs r ON r.id = t.run AND NOT r.leftovers WHERE t.expires_at <= v_now ORDER BY t.expires_at LIMIT p_most)
      UNION ALL
      (SELECT t.id FROM delayed t JOIN runs r ON r.id = t.run AND NOT r.leftovers WHERE t.expires_at <= v_now ORDER BY t.expires_at LIMIT p_most)) x
    LIMIT p_most);
  IF cardinality(v_over) = 0 THEN
    RETURN 0;
  END IF;
  RETURN expire(p_now, v_over);
END
$$;

-- Runs that reached their page limit end; a slice of what was cancelled with its run goes.
CREATE FUNCTION tidy(p_now bigint, p_slice integer) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v record;
  v_gone integer;
  v_more integer;
BEGIN
  FOR v IN SELECT id FROM runs WHERE state IN ('running', 'paused') AND max_pages > 0 ORDER BY id LOOP
    PERFORM pg_advisory_xact_lock(place(), v.id);
    PERFORM stop_at_limit(tick(p_now), v.id);
  END LOOP;
  FOR v IN SELECT id FROM runs WHERE leftovers ORDER BY id LIMIT 5 LOOP
    CONTINUE WHEN NOT pg_try_advisory_xact_lock(place(), v.id);
    CONTINUE WHEN NOT (SELECT leftovers FROM runs WHERE id = v.id);
    DELETE FROM ready WHERE id = ANY (ARRAY(SELECT id FROM ready WHERE id >= v.id::bigint << 32 AND id < (v.id + 1)::bigint << 32 LIMIT p_slice));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    DELETE FROM delayed WHERE id = ANY (ARRAY(SELECT id FROM delayed WHERE id >= v.id::bigint << 32 AND id < (v.id + 1)::bigint << 32 LIMIT p_slice));
    GET DIAGNOSTICS v_more = ROW_COUNT;
    IF v_gone < p_slice AND v_more < p_slice THEN
      UPDATE runs SET leftovers = false WHERE id = v.id;
    END IF;
  END LOOP;
END
$$;

-- Heartbeat. p_numbers with the tasks started by now, flat as (p_of, p_tasks). Answers per lease: alive, cancelled tasks.
CREATE FUNCTION extend(p_now bigint, p_worker text, p_lease bigint, p_numbers bigint[], p_of bigint[], p_tasks bigint[])
RETURNS TABLE (o_number bigint, o_cancelled bigint[]) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := tick(p_now);
BEGIN
  PERFORM hint();
  PERFORM 1 FROM leases WHERE number = ANY (p_numbers) ORDER BY number FOR NO KEY UPDATE;
  RETURN QUERY
    UPDATE leases x SET expires_at = greatest(x.expires_at, v_now + p_lease),
                        started = ARRAY(SELECT s.task FROM unnest(p_of, p_tasks) s(number, task) WHERE s.number = x.number)
    WHERE x.number = ANY (p_numbers) AND x.worker = p_worker AND x.expires_at > v_now
    RETURNING x.number, ARRAY(SELECT id FROM leased t WHERE t.lease = x.number AND t.cancelled);
END
$$;
