-- What people look at must not cost more when there is more of it: few indexes, and dead letters counted by group.

ALTER TABLE workers ADD figures bytea NOT NULL DEFAULT '';
ALTER TABLE workers ALTER figures SET STORAGE EXTERNAL;   -- it is replaced every few seconds
CREATE INDEX runs_by_scraper ON runs (scraper, id);
CREATE INDEX ended_cancelled ON ended (id) WHERE state = 'cancelled';

-- Which dead letters belong together, oldest first. Causes may be longer than an index takes, so it holds their digests.
CREATE INDEX dead_by_group ON dead ((id >> 32), lane, md5(cause), ended_at);
CREATE TABLE dead_groups (
  run bigint NOT NULL, lane integer NOT NULL, cause text NOT NULL, count bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE UNIQUE INDEX dead_groups_one ON dead_groups (run, lane, md5(cause));
INSERT INTO dead_groups SELECT id >> 32, lane, cause, count(*) FROM dead GROUP BY 1, 2, 3;

-- Whoever buries or unburies holds the lock of the lane, so nobody waits here.
CREATE FUNCTION count_buried() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO dead_groups AS g SELECT id >> 32, lane, cause, count(*) FROM buried GROUP BY 1, 2, 3
  ON CONFLICT (run, lane, md5(cause)) DO UPDATE SET count = g.count + excluded.count;
  RETURN NULL;
END
$$;

CREATE FUNCTION count_unburied() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  UPDATE dead_groups g SET count = g.count - u.n
  FROM (SELECT id >> 32 AS run, lane, cause, count(*) AS n FROM unburied GROUP BY 1, 2, 3) u
  WHERE g.run = u.run AND g.lane = u.lane AND md5(g.cause) = md5(u.cause);
  DELETE FROM dead_groups WHERE run IN (SELECT DISTINCT id >> 32 FROM unburied) AND count <= 0;
  RETURN NULL;
END
$$;

CREATE TRIGGER buried AFTER INSERT ON dead REFERENCING NEW TABLE AS buried FOR EACH STATEMENT EXECUTE FUNCTION count_buried();
CREATE TRIGGER unburied AFTER DELETE ON dead REFERENCING OLD TABLE AS unburied FOR EACH STATEMENT EXECUTE FUNCTION count_unburied();

-- As before, but planned once in a session: the account of a run as JSON, with what could be handed out this second.
CREATE OR REPLACE FUNCTION stats(p_now bigint, p_run integer, p_horizon bigint) RETURNS json LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
  RETURN (
    WITH clock AS MATERIALIZED (
      SELECT tick(p_now) AS now
    ), run AS MATERIALIZED (
      SELECT state, max_pages FROM runs WHERE id = p_run
    ), account AS MATERIALIZED (
      SELECT coalesce(sum(seen), 0)::bigint AS seen, coalesce(sum(ready), 0)::bigint AS ready, coalesce(sum(delayed), 0)::bigint AS delayed,
             coalesce(sum(leased), 0)::bigint AS leased, coalesce(sum(done), 0)::bigint AS done, coalesce(sum(dead), 0)::bigint AS dead,
             coalesce(sum(cancelled), 0)::bigint AS cancelled, coalesce(sum(records), 0)::bigint AS records, coalesce(sum(retries), 0)::bigint AS retries,
             coalesce(sum(lost), 0)::bigint AS lost, coalesce(sum(stale), 0)::bigint AS stale, coalesce(sum(bytes), 0)::bigint AS bytes,
             coalesce(sum(trimmed), 0)::bigint AS trimmed
      FROM counters WHERE run = p_run
    ), ripe AS MATERIALIZED (
      -- Delayed tasks whose time has come and that no claim has promoted yet.
      SELECT lane, count(*)::integer AS n
      FROM (SELECT lane, run FROM delayed WHERE due <= (SELECT now FROM clock) AND (SELECT delayed > 0 FROM account) LIMIT 10000) d WHERE run = p_run GROUP BY lane
    ), due AS (
      SELECT lane, ready FROM (SELECT lane, ready FROM heads WHERE run = p_run AND wake_at <= (SELECT now FROM clock) LIMIT 1000) h
      UNION SELECT h.lane, h.ready FROM ripe JOIN heads h ON h.run = p_run AND h.lane = ripe.lane
    ), room AS (
      SELECT d.ready + coalesce(ripe.n, 0) AS waiting,
             CASE WHEN l.spacing > 0 THEN p_horizon / l.spacing + 1 END AS slots,
             CASE WHEN l.parked > 0 THEN 1 - l.in_flight WHEN l.max_in_flight > 0 THEN l.max_in_flight - l.in_flight END AS places
      FROM due d JOIN lanes l ON l.id = d.lane LEFT JOIN ripe ON ripe.lane = d.lane
      WHERE greatest(l.next_at, l.held_until) <= (SELECT now FROM clock)
    )
    SELECT json_build_object(
      'seen', a.seen, 'ready', a.ready, 'delayed', a.delayed - (SELECT coalesce(sum(n), 0) FROM ripe), 'leased', a.leased, 'done', a.done, 'dead', a.dead,
      'cancelled', a.cancelled, 'records', a.records, 'retries', a.retries, 'lost', a.lost, 'stale', a.stale, 'bytes', a.bytes, 'trimmed', a.trimmed,
      'claimable', CASE WHEN run.state = 'running' THEN greatest(0, least(
        (SELECT coalesce(sum(greatest(0, least(waiting, slots, places))), 0) FROM room),
        CASE WHEN run.max_pages > 0 THEN run.max_pages - a.done - a.dead - a.leased END)) ELSE 0 END,
      'skipped', (SELECT coalesce(json_object_agg(reason, n), '{}') FROM (SELECT reason, sum(count) AS n FROM skips WHERE run = p_run GROUP BY reason) s))
    FROM account a, run);
END
$$;

-- The accounts of many runs, in the order asked for; NULL for one that never was.
CREATE FUNCTION stats_of(p_now bigint, p_runs integer[], p_horizon bigint) RETURNS SETOF json LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT stats(p_now, u.run, p_horizon) FROM unnest(p_runs) WITH ORDINALITY u(run, n) ORDER BY u.n
$$;

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
  v_now := tick(p_now);
  v_mark := json_build_object('at', v_now, 'worker', '', 'cause', 'dropped', 'message', p_message)::text;
  WITH waiting AS (
    DELETE FROM ready WHERE id = ANY (p_tasks) AND lane = ANY (v_lanes)
    RETURNING id, lane, gave_back, added_at, attempts, lost, priority, depth, parent, digest, kind, url, history, false AS late
  ), later AS (
    DELETE FROM delayed WHERE id = ANY (p_tasks) AND lane = ANY (v_lanes)
    RETURNING id, lane, gave_back, added_at, attempts, lost, priority, depth, parent, digest, kind, url, history, true AS late
  ), gone AS MATERIALIZED (
    SELECT * FROM waiting UNION ALL SELECT * FROM later
  ), ends AS (
    INSERT INTO ended (id, state, lease, gave_back, lane, ended_at, added_at, attempts, lost, priority, depth, parent, digest, records, kind, url, cause, history)
    SELECT id, 'cancelled', 0, gave_back, lane, v_now, added_at, attempts, lost, priority, depth, parent, digest, 0, kind, url, 'dropped', grown(history, v_mark) FROM gone
  ), counted AS (
    UPDATE heads h SET ready = h.ready - c.n
    FROM (SELECT lane, count(*) AS n FROM gone WHERE NOT late GROUP BY lane) c WHERE h.run = p_run AND h.lane = c.lane
  )
  SELECT count(*), count(*) FILTER (WHERE late) INTO v_count, v_late FROM gone;
  PERFORM tally(p_run, p_ready => -v_count, p_delayed => -v_late, p_cancelled => v_count);
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
  v_now := tick(p_now);
  v_mark := json_build_object('at', v_now, 'worker', '', 'cause', 'dropped', 'message', p_message)::text;
  WITH gone AS (
    DELETE FROM dead WHERE id = ANY (p_tasks) RETURNING *
  ), ends AS (
    INSERT INTO ended (id, state, lease, gave_back, lane, ended_at, added_at, attempts, lost, priority, depth, parent, digest, records, kind, url, cause, history)
    SELECT id, 'cancelled', lease, gave_back, lane, v_now, added_at, attempts, lost, priority, depth, parent, digest, 0, kind, url, 'dropped', grown(history, v_mark) FROM gone
  )
  SELECT count(*) INTO v_count FROM gone;
  PERFORM tally(p_run, p_dead => -v_count, p_cancelled => v_count);
  RETURN v_count;
END
$$;
