-- Runs: their registry, their account, and how they end.

-- No row: another run has that name. p_once: one that has ended is returned, too.
CREATE FUNCTION start_run(p_now bigint, p_name text, p_scraper text, p_key text, p_weight integer, p_priority integer, p_max_pages bigint, p_spec text, p_once boolean,
                          p_seen_set text, p_seen_for bigint, p_dead_retention bigint DEFAULT 0)
RETURNS SETOF runs LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_now bigint;
  v runs;
BEGIN
  PERFORM pg_advisory_xact_lock(lock_namespace(), -1);
  v_now := clock_micros(p_now);
  SELECT * INTO v FROM runs WHERE key = p_key AND (p_once OR state IN ('running', 'paused')) ORDER BY state IN ('running', 'paused') DESC, id DESC LIMIT 1;
  IF FOUND THEN
    RETURN NEXT v;
    RETURN;
  END IF;
  PERFORM 1 FROM runs WHERE name = p_name;
  IF FOUND THEN
    RETURN;
  END IF;
  IF p_seen_set <> '' THEN
    INSERT INTO seen_sets AS s (name, seen_for, created_at, swept_at) VALUES (p_seen_set, p_seen_for, v_now, v_now)
    ON CONFLICT (name) DO UPDATE SET seen_for = CASE p_seen_for WHEN 0 THEN s.seen_for ELSE p_seen_for END;
  END IF;
  RETURN QUERY
    INSERT INTO runs (id, name, scraper, key, state, created_at, changed_at, weight, priority, max_pages, spec, seen_set, seen_for, dead_retention, share)
    VALUES (next_run(v_now), CASE p_name WHEN '' THEN 'r' || to_hex(v_now) ELSE p_name END, p_scraper, p_key, 'running', v_now, v_now, p_weight, p_priority, p_max_pages, p_spec, p_seen_set, p_seen_for, p_dead_retention,
            (SELECT coalesce(min(share), 0) FROM runs WHERE state = 'running'))
    RETURNING *;
END
$$;

-- Change a run as a whole: the new state, or why not. Refusals are 'none' (no such run), 'ended', 'open:N' or 'outbox:N'.
CREATE FUNCTION set_run(p_now bigint, p_run integer, p_state text) RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint;
  v_state text;
  v_open bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(lock_namespace(), p_run);
  v_now := clock_micros(p_now);
  SELECT state INTO v_state FROM runs WHERE id = p_run;
  IF NOT FOUND THEN
    RETURN 'none';
  ELSIF v_state = p_state THEN
    RETURN '';
  ELSIF v_state IN ('cancelled', 'finished') THEN
    RETURN 'ended';
  END IF;
  IF p_state = 'cancelled' THEN
    PERFORM cancel_run(v_now, p_run, 'cancelled');
  ELSIF p_state = 'finished' THEN
    SELECT coalesce(sum(ready + leased), 0) INTO v_open FROM counters WHERE run = p_run;
    IF v_open > 0 THEN
      RETURN 'open:' || v_open;
    END IF;
    SELECT coalesce(sum(outbox), 0) INTO v_open FROM counters WHERE run = p_run;
    IF v_open > 0 THEN
      RETURN 'outbox:' || v_open;
    END IF;
    UPDATE runs SET state = 'finished', changed_at = v_now, finished_at = v_now WHERE id = p_run;
    PERFORM begin_moving(p_run);
  ELSE
    UPDATE runs SET state = p_state, changed_at = v_now,
      -- One that comes back is level with the others, it does not catch up.
      share = CASE p_state WHEN 'running' THEN greatest(share, (SELECT coalesce(min(share), 0) FROM runs WHERE state = 'running' AND id <> p_run)) ELSE share END
    WHERE id = p_run;
    IF p_state = 'running' THEN
      PERFORM notify_workers();
    END IF;
  END IF;
  RETURN '';
END
$$;

-- Remove a run that has ended: all but its history, which no verb finds any more and which goes by its partition.
CREATE FUNCTION purge(p_run integer) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_first bigint := p_run::bigint << 32;
  v_last bigint := (p_run + 1)::bigint << 32;
  v_lanes integer[];
  v_leases bigint[];
BEGIN
  PERFORM pg_advisory_xact_lock(lock_namespace(), p_run);
  PERFORM 1 FROM runs WHERE id = p_run AND state IN ('finished', 'cancelled');
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  v_lanes := ARRAY(SELECT lane FROM run_lanes WHERE run + 0 = p_run AND needs = 0);
  PERFORM lock_lanes(v_lanes);
  DELETE FROM run_lanes WHERE run + 0 = p_run;
  -- One claim may hold tasks of several runs: only leases that hold nothing else go with this one.
  WITH gone AS (DELETE FROM leased WHERE id >= v_first AND id < v_last RETURNING lease) SELECT array_agg(DISTINCT lease) INTO v_leases FROM gone;
  DELETE FROM leases x WHERE x.number = ANY (v_leases) AND NOT EXISTS (SELECT 1 FROM leased WHERE lease = x.number);
  DELETE FROM ready WHERE id >= v_first AND id < v_last;
  DELETE FROM delayed WHERE id >= v_first AND id < v_last;
  DELETE FROM dead WHERE id >= v_first AND id < v_last;
  DELETE FROM discarded WHERE id >= v_first AND id < v_last;
  DELETE FROM page_states WHERE id >= v_first AND id < v_last;
  DELETE FROM outbox WHERE run = p_run;
  DELETE FROM run_counters WHERE run = p_run;
  DELETE FROM skips WHERE run = p_run;
  DELETE FROM skip_samples WHERE run = p_run;
  DELETE FROM counters WHERE run = p_run;
  DELETE FROM run_needs WHERE run = p_run;
  DELETE FROM needs_counters WHERE run = p_run;
  DELETE FROM runs WHERE id = p_run;
  PERFORM apply_pace(v_lanes);
  PERFORM wake(v_lanes);
  RETURN true;
END
$$;

-- The same account counted from the tasks themselves, slowly.
CREATE FUNCTION recount(p_now bigint, p_run integer) RETURNS json LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT json_build_object(
    'open', (SELECT state IN ('running', 'paused') FROM runs WHERE id = p_run),
    'seen', (SELECT count(*) FROM seen WHERE run = p_run AND task > 0),
    'ready', (SELECT count(*) FROM ready WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32),
    'due_delayed', (SELECT count(*) FROM delayed WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND due <= clock_micros(p_now)),
    'delayed', (SELECT count(*) FROM delayed WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND due > clock_micros(p_now)),
    'leased', (SELECT count(*) FROM leased WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND NOT cancelled),
    'done', (SELECT count(*) FROM ended WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND state = 'done'),
    'cancelled', (SELECT count(*) FROM ended WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND state = 'cancelled'),
    'dead', (SELECT count(*) FROM dead WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32),
    'aside', (SELECT count(*) FROM ended WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND state = 'done' AND is_aside(kind))
           + (SELECT count(*) FROM dead WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND is_aside(kind)),
    'discarded', (SELECT count(*) FROM discarded WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32),
    'needs', (SELECT coalesce(json_object_agg(array_to_string(n.names, '+'), x.n), '{}') FROM (
      SELECT w.needs, count(*) AS n FROM (SELECT id, needs, 0 AS due FROM ready UNION ALL SELECT id, needs, due FROM delayed) w
      WHERE w.id >= p_run::bigint << 32 AND w.id < (p_run + 1)::bigint << 32 AND w.due <= clock_micros(p_now) AND w.needs > 0 GROUP BY w.needs) x
      JOIN run_needs n ON n.run = p_run AND n.needs = x.needs),
    'records', (SELECT coalesce(sum(cardinality(tasks)), 0) FROM batches WHERE run = p_run) + (SELECT coalesce(sum(trimmed), 0) FROM counters WHERE run = p_run),
    'outbox', (SELECT count(*) FROM outbox WHERE run = p_run))
$$;
