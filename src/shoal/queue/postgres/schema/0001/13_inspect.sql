-- What people look at must not cost more when there is more of it: few indexes, and dead letters counted by group.

-- Which dead letters belong together, oldest first. Causes may be longer than an index takes, so it holds their digests.
CREATE INDEX dead_by_group ON dead ((id >> 32), lane, md5(cause), ended_at);
CREATE TABLE dead_groups (
  run bigint NOT NULL, lane integer NOT NULL, cause text NOT NULL, count bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE UNIQUE INDEX dead_groups_one ON dead_groups (run, lane, md5(cause));

-- Whoever adds or removes dead letters holds the lock of the lane, so nobody waits here.
CREATE FUNCTION count_dead_inserted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO dead_groups AS g SELECT id >> 32, lane, cause, count(*) FROM dead_lettered GROUP BY 1, 2, 3
  ON CONFLICT (run, lane, md5(cause)) DO UPDATE SET count = g.count + excluded.count;
  PERFORM add_counters(u.run, p_aside => u.n) FROM (SELECT (id >> 32)::integer AS run, count(*) AS n FROM dead_lettered WHERE is_aside(kind) GROUP BY 1) u;
  RETURN NULL;
END
$$;

CREATE FUNCTION count_dead_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  UPDATE dead_groups g SET count = g.count - u.n
  FROM (SELECT id >> 32 AS run, lane, cause, count(*) AS n FROM dead_deleted GROUP BY 1, 2, 3) u
  WHERE g.run = u.run AND g.lane = u.lane AND md5(g.cause) = md5(u.cause);
  DELETE FROM dead_groups WHERE run IN (SELECT DISTINCT id >> 32 FROM dead_deleted) AND count <= 0;
  PERFORM add_counters(u.run, p_aside => -u.n) FROM (SELECT (id >> 32)::integer AS run, count(*) AS n FROM dead_deleted WHERE is_aside(kind) GROUP BY 1) u;
  RETURN NULL;
END
$$;

CREATE TRIGGER dead_lettered AFTER INSERT ON dead REFERENCING NEW TABLE AS dead_lettered FOR EACH STATEMENT EXECUTE FUNCTION count_dead_inserted();
CREATE TRIGGER dead_deleted AFTER DELETE ON dead REFERENCING OLD TABLE AS dead_deleted FOR EACH STATEMENT EXECUTE FUNCTION count_dead_deleted();

-- Give up what waits of these tasks: how many did.
CREATE FUNCTION drop_waiting(p_now bigint, p_run integer, p_tasks bigint[], p_message text) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint;
  v_mark text;
  v_lanes integer[];
  v_count integer;
  v_late integer;
BEGIN
  PERFORM lock_runs(ARRAY[p_run]);
  PERFORM 1 FROM runs WHERE id = p_run AND state IN ('running', 'paused');
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  v_lanes := ARRAY(SELECT lane FROM ready WHERE id = ANY (p_tasks) UNION SELECT lane FROM delayed WHERE id = ANY (p_tasks));
  PERFORM lock_lanes(v_lanes);
  v_now := clock_micros(p_now);
  v_mark := json_build_object('at', v_now, 'worker', '', 'cause', 'dropped', 'message', p_message)::text;
  WITH waiting AS (
    DELETE FROM ready WHERE id = ANY (p_tasks) AND lane = ANY (v_lanes)
    RETURNING id, lane, needs, returned_lease, added_at, attempts, lost, priority, depth, parent, digest, kind, url, history, false AS late
  ), later AS (
    DELETE FROM delayed WHERE id = ANY (p_tasks) AND lane = ANY (v_lanes)
    RETURNING id, lane, needs, returned_lease, added_at, attempts, lost, priority, depth, parent, digest, kind, url, history, true AS late
  ), gone AS MATERIALIZED (
    SELECT * FROM waiting UNION ALL SELECT * FROM later
  ), ends AS (
    INSERT INTO ended (id, state, lease, returned_lease, lane, ended_at, added_at, attempts, lost, priority, depth, parent, digest, records, kind, url, cause, history)
    SELECT id, 'cancelled', 0, returned_lease, lane, v_now, added_at, attempts, lost, priority, depth, parent, digest, 0, kind, url, 'dropped', append_attempt(history, v_mark) FROM gone
  ), counted AS (
    UPDATE run_lanes h SET ready = h.ready - c.n
    FROM (SELECT lane, needs, count(*) AS n FROM gone WHERE NOT late GROUP BY lane, needs) c WHERE h.run = p_run AND h.lane = c.lane AND h.needs = c.needs
  )
  SELECT count(*), count(*) FILTER (WHERE late) INTO v_count, v_late FROM gone;
  PERFORM add_counters(p_run, p_ready => -v_count, p_delayed => -v_late, p_cancelled => v_count);
  PERFORM wake(v_lanes);
  RETURN v_count;
END
$$;

-- Give up these dead letters: how many were there. Also of a run that has ended.
CREATE FUNCTION drop_dead(p_now bigint, p_run integer, p_tasks bigint[], p_message text) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint;
  v_mark text;
  v_count integer;
BEGIN
  PERFORM lock_runs(ARRAY[p_run]);
  PERFORM lock_lanes(ARRAY(SELECT lane FROM dead WHERE id = ANY (p_tasks)));
  v_now := clock_micros(p_now);
  v_mark := json_build_object('at', v_now, 'worker', '', 'cause', 'dropped', 'message', p_message)::text;
  WITH gone AS (
    DELETE FROM dead WHERE id = ANY (p_tasks) RETURNING *
  ), ends AS (
    INSERT INTO ended (id, state, lease, returned_lease, lane, ended_at, added_at, attempts, lost, priority, depth, parent, digest, records, kind, url, cause, history)
    SELECT id, 'cancelled', lease, returned_lease, lane, v_now, added_at, attempts, lost, priority, depth, parent, digest, 0, kind, url, 'dropped', append_attempt(history, v_mark) FROM gone
  )
  SELECT count(*) INTO v_count FROM gone;
  PERFORM add_counters(p_run, p_dead => -v_count, p_cancelled => v_count);
  RETURN v_count;
END
$$;

-- The tasks of these digests, in their order; 0 where there is none. One look-up each: a plan that was made while there were few would compare each with each.
CREATE FUNCTION ids_of(p_run integer, p_digests bytea[]) RETURNS bigint[] LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
  RETURN ARRAY(
    SELECT coalesce((SELECT abs(s.task) FROM seen s WHERE s.run = p_run AND s.digest = u.digest), 0)
    FROM unnest(p_digests) WITH ORDINALITY u(digest, n) WHERE EXISTS (SELECT 1 FROM runs WHERE id = p_run) ORDER BY u.n);
END
$$;
