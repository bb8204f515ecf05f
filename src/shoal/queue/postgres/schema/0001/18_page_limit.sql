-- Page limit: a run may get another one, and goes on with what was left if it was its limit that ended it.

-- What was cancelled with a run and is kept is as it was. The caller has the run alone.
CREATE FUNCTION bring_back(p_now bigint, v runs) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  p_run integer := v.id;
  v_lanes integer[];
  v_leased bigint;
BEGIN
  v_lanes := ARRAY(SELECT DISTINCT lane FROM leased WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32);
  PERFORM lock_lanes(v_lanes || lanes_if_few(p_run));
  WITH held AS (
    UPDATE leased SET cancelled = false
    WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND cancelled RETURNING lane
  ), places AS (
    UPDATE lanes l SET in_flight = l.in_flight + c.n FROM (SELECT lane, count(*) AS n FROM held GROUP BY lane) c WHERE l.id = c.lane
  )
  SELECT count(*) INTO v_leased FROM held;
  PERFORM add_counters(p_run, p_ready => v.kept_ready, p_delayed => v.kept_delayed, p_leased => v_leased, p_cancelled => -v.kept_ready - v_leased);
  UPDATE runs SET state = v.state_before, finished_at = 0, changed_at = p_now, leftovers = false, undo_until = 0, kept_ready = 0, kept_delayed = 0,
    -- One that comes back is level with the others, it does not catch up.
    share = greatest(share, (SELECT coalesce(min(share), 0) FROM runs WHERE state = 'running'))
  WHERE id = p_run;
  PERFORM wake(v_lanes);
  PERFORM begin_moving(p_run);
  PERFORM notify_workers();
END
$$;

-- Another page limit. Refusals are 'none' (no such run), 'ended' (not by its limit), 'late', 'reached:' with how many pages have
-- ended, and 'replaced:' with the name of the other run.
CREATE FUNCTION set_max_pages(p_now bigint, p_run integer, p_max_pages bigint) RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint;
  v runs;
  v_ended bigint;
  v_left bigint;
  v_other text;
BEGIN
  PERFORM pg_advisory_xact_lock(lock_namespace(), -1);  -- no other of the same key is started meanwhile
  PERFORM pg_advisory_xact_lock(lock_namespace(), p_run);
  v_now := clock_micros(p_now);
  SELECT * INTO v FROM runs WHERE id = p_run;
  IF NOT FOUND THEN
    RETURN 'none';
  END IF;
  IF v.state NOT IN ('running', 'paused') THEN
    SELECT coalesce(sum(done + dead + discarded - aside), 0), coalesce(sum(cancelled), 0) INTO v_ended, v_left FROM counters WHERE run = p_run;
    IF v.state <> 'finished' OR v_left = 0 OR v.max_pages = 0 OR v_ended < v.max_pages THEN
      RETURN 'ended';
    ELSIF v.undo_until <= v_now THEN
      RETURN 'late';
    ELSIF p_max_pages > 0 AND p_max_pages <= v_ended THEN
      RETURN 'reached:' || v_ended;
    END IF;
    SELECT name INTO v_other FROM runs WHERE key = v.key AND state IN ('running', 'paused') ORDER BY id DESC LIMIT 1;
    IF FOUND THEN
      RETURN 'replaced:' || v_other;
    END IF;
    PERFORM bring_back(v_now, v);
  END IF;
  UPDATE runs SET max_pages = greatest(0, p_max_pages), changed_at = v_now WHERE id = p_run;
  RETURN '';
END
$$;
