-- Runs: their registry, their account, and how they end.

-- No row: another run has that name. p_once: one that has ended is returned, too.
CREATE FUNCTION start_run(p_now bigint, p_name text, p_scraper text, p_key text, p_weight integer, p_max_pages bigint, p_spec text, p_once boolean)
RETURNS SETOF runs LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_now bigint;
  v runs;
BEGIN
  PERFORM pg_advisory_xact_lock(place(), -1);
  v_now := tick(p_now);
  SELECT * INTO v FROM runs WHERE key = p_key AND (p_once OR state IN ('running', 'paused')) ORDER BY state IN ('running', 'paused') DESC, id DESC LIMIT 1;
  IF FOUND THEN
    RETURN NEXT v;
    RETURN;
  END IF;
  PERFORM 1 FROM runs WHERE name = p_name;
  IF FOUND THEN
    RETURN;
  END IF;
  RETURN QUERY
    INSERT INTO runs (id, name, scraper, key, state, created_at, changed_at, weight, max_pages, spec, share)
    VALUES (next_run(v_now), CASE p_name WHEN '' THEN 'r' || to_hex(v_now) ELSE p_name END, p_scraper, p_key, 'running', v_now, v_now, p_weight, p_max_pages, p_spec,
            (SELECT coalesce(min(share), 0) FROM runs WHERE state = 'running'))
    RETURNING *;
END
$$;

-- Change a run as a whole: the new state, or why not. Refusals are 'none' (no such run), 'ended', or 'open:N'.
CREATE FUNCTION set_run(p_now bigint, p_run integer, p_state text) RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint;
  v_state text;
  v_open bigint;
  v_lanes integer[];
BEGIN
  PERFORM pg_advisory_xact_lock(place(), p_run);
  v_now := tick(p_now);
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
    v_lanes := ARRAY(SELECT lane FROM heads WHERE run = p_run);
    PERFORM lock_lanes(v_lanes);
    UPDATE runs SET state = 'finished', changed_at = v_now, finished_at = v_now WHERE id = p_run;
    PERFORM settle_pace(v_lanes);
    PERFORM wake(v_lanes);
  ELSE
    UPDATE runs SET state = p_state, changed_at = v_now,
      -- One that comes back is level with the others, it does not catch up.
      share = CASE p_state WHEN 'running' THEN greatest(share, (SELECT coalesce(min(share), 0) FROM runs WHERE state = 'running' AND id <> p_run)) ELSE share END
    WHERE id = p_run;
    IF p_state = 'running' THEN
      PERFORM ring();
    END IF;
  END IF;
  RETURN '';
END
$$;

-- Dead letters start over, with their past kept for people but not held against them.
CREATE FUNCTION revive(p_now bigint, p_run integer, p_tasks bigint[], p_message text) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint;
  v_state text;
  v_lanes integer[];
  v_count bigint;
  v_mark text;
BEGIN
  PERFORM pg_advisory_xact_lock(place(), p_run);
  v_now := tick(p_now);
  v_mark := json_build_object('at', v_now, 'worker', '', 'cause', 'revived', 'message', p_message)::text;
  SELECT state INTO v_state FROM runs WHERE id = p_run;
  PERFORM 1 FROM dead WHERE id = ANY (p_tasks) LIMIT 1;
  IF NOT FOUND OR v_state = 'cancelled' THEN
    RETURN 0;
  END IF;
  v_lanes := ARRAY(SELECT lane FROM heads WHERE run = p_run);
  PERFORM lock_lanes(v_lanes);
  IF v_state = 'finished' THEN
    -- What its page limit cancelled goes first, or tidying would take the revived for leftovers.
    DELETE FROM ready WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32;
    DELETE FROM delayed WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32;
    UPDATE runs SET state = 'running', finished_at = 0, changed_at = v_now, leftovers = false WHERE id = p_run;
  END IF;
  WITH gone AS (
    DELETE FROM dead WHERE id = ANY (p_tasks) RETURNING *
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
  PERFORM settle_pace(v_lanes);
  PERFORM wake(v_lanes);
  PERFORM ring();
  RETURN v_count;
END
$$;

-- Remove a run that has ended: all but its history, which no verb finds any more and which goes by its shelf.
CREATE FUNCTION purge(p_run integer) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_first bigint := p_run::bigint << 32;
  v_last bigint := (p_run + 1)::bigint << 32;
  v_lanes integer[];
  v_leases bigint[];
BEGIN
  PERFORM pg_advisory_xact_lock(place(), p_run);
  PERFORM 1 FROM runs WHERE id = p_run AND state IN ('finished', 'cancelled');
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  v_lanes := ARRAY(SELECT lane FROM heads WHERE run = p_run);
  PERFORM lock_lanes(v_lanes);
  DELETE FROM heads WHERE run = p_run;
  -- One claim may hold tasks of several runs: only leases that hold nothing else go with this one.
  WITH gone AS (DELETE FROM leased WHERE id >= v_first AND id < v_last RETURNING lease) SELECT array_agg(DISTINCT lease) INTO v_leases FROM gone;
  DELETE FROM leases x WHERE x.number = ANY (v_leases) AND NOT EXISTS (SELECT 1 FROM leased WHERE lease = x.number);
  DELETE FROM ready WHERE id >= v_first AND id < v_last;
  DELETE FROM delayed WHERE id >= v_first AND id < v_last;
  DELETE FROM dead WHERE id >= v_first AND id < v_last;
  DELETE FROM skips WHERE run = p_run;
  DELETE FROM skip_samples WHERE run = p_run;
  DELETE FROM counters WHERE run = p_run;
  DELETE FROM runs WHERE id = p_run;
  PERFORM settle_pace(v_lanes);
  PERFORM wake(v_lanes);
  RETURN true;
END
$$;

-- The exact account of a run as JSON, with what could be handed out this second.
CREATE FUNCTION stats(p_now bigint, p_run integer, p_horizon bigint) RETURNS json LANGUAGE sql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
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
  FROM account a, run
$$;

-- The same account counted from the tasks themselves, slowly.
CREATE FUNCTION recount(p_now bigint, p_run integer) RETURNS json LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT json_build_object(
    'open', (SELECT state IN ('running', 'paused') FROM runs WHERE id = p_run),
    'seen', (SELECT count(*) FROM seen WHERE run = p_run AND task > 0),
    'ready', (SELECT count(*) FROM ready WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32),
    'ripe', (SELECT count(*) FROM delayed WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND due <= tick(p_now)),
    'delayed', (SELECT count(*) FROM delayed WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND due > tick(p_now)),
    'leased', (SELECT count(*) FROM leased WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND NOT cancelled),
    'done', (SELECT count(*) FROM ended WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND state = 'done'),
    'cancelled', (SELECT count(*) FROM ended WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND state = 'cancelled'),
    'dead', (SELECT count(*) FROM dead WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32),
    'records', (SELECT coalesce(sum(cardinality(tasks)), 0) FROM batches WHERE run = p_run) + (SELECT coalesce(sum(trimmed), 0) FROM counters WHERE run = p_run))
$$;
