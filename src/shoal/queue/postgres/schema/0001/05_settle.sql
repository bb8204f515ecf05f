-- Settle: the one place where tasks are acknowledged.
-- Results: 0 done, 1 retry, 2 dead, 3 released, 4 cancelled, 5 part. Verdicts: 0 ok, 1 already, 2 stale.

CREATE FUNCTION record_skips(p_run integer, p_reason text, p_urls text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_kept bigint;
BEGIN
  INSERT INTO skips AS s VALUES (p_run, p_reason, pg_backend_pid() % 32, cardinality(p_urls))
  ON CONFLICT (run, reason, shard) DO UPDATE SET count = s.count + cardinality(p_urls);
  SELECT count(*) INTO v_kept FROM skip_samples WHERE run = p_run AND reason = p_reason;
  IF v_kept < 50 THEN
    INSERT INTO skip_samples (run, reason, url)
    SELECT DISTINCT p_run, p_reason, u FROM unnest(p_urls[1:50 - v_kept]) u
    WHERE NOT EXISTS (SELECT 1 FROM skip_samples WHERE run = p_run AND reason = p_reason AND url = u);
  END IF;
END
$$;

-- Close the account of a run at once; the rows are kept for a while. Leased tasks may still bring their records.
-- The caller has the run alone.
CREATE FUNCTION cancel_run(p_now bigint, p_run integer, p_state text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_lanes integer[] := ARRAY(SELECT DISTINCT lane FROM leased WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND NOT cancelled);
  v record;
BEGIN
  PERFORM lock_lanes(v_lanes || lanes_if_few(p_run));
  WITH held AS (
    UPDATE leased SET cancelled = true
    WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 AND NOT cancelled RETURNING lane
  )
  UPDATE lanes l SET in_flight = l.in_flight - c.n FROM (SELECT lane, count(*) AS n FROM held GROUP BY lane) c WHERE l.id = c.lane;
  SELECT sum(ready) AS ready, sum(delayed) AS delayed, sum(leased) AS leased INTO v FROM counters WHERE run = p_run;
  PERFORM add_counters(p_run, p_ready => -coalesce(v.ready, 0)::bigint, p_delayed => -coalesce(v.delayed, 0)::bigint,
                p_leased => -coalesce(v.leased, 0)::bigint, p_cancelled => coalesce(v.ready + v.leased, 0)::bigint);
  UPDATE runs SET leftovers = true, undo_until = p_now + CASE p_state WHEN 'finished' THEN 86400000000 ELSE 3600000000 END, state_before = state, kept_ready = coalesce(v.ready, 0), kept_delayed = coalesce(v.delayed, 0),
                  state = p_state, changed_at = p_now, finished_at = p_now WHERE id = p_run;
  PERFORM wake(v_lanes);
  PERFORM begin_moving(p_run);
END
$$;

-- Take back a cancel: the account is as it would be, and the lanes notice one after the other. Refusals are 'none' (no such run),
-- 'ended' (not by a cancel), 'late' and 'replaced:' with the name of the other run.
CREATE FUNCTION undo_run(p_now bigint, p_run integer) RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint;
  v runs;
  v_other text;
BEGIN
  PERFORM pg_advisory_xact_lock(lock_namespace(), -1);  -- no other of the same key is started meanwhile
  PERFORM pg_advisory_xact_lock(lock_namespace(), p_run);
  v_now := clock_micros(p_now);
  SELECT * INTO v FROM runs WHERE id = p_run;
  IF NOT FOUND THEN
    RETURN 'none';
  ELSIF v.state IN ('running', 'paused') THEN
    RETURN '';
  ELSIF v.state <> 'cancelled' THEN
    RETURN 'ended';
  ELSIF v.undo_until <= v_now THEN
    RETURN 'late';
  END IF;
  SELECT name INTO v_other FROM runs WHERE key = v.key AND state IN ('running', 'paused') ORDER BY id DESC LIMIT 1;
  IF FOUND THEN
    RETURN 'replaced:' || v_other;
  END IF;
  PERFORM bring_back(v_now, v);
  RETURN '';
END
$$;

-- When as many pages have ended as were asked for, the rest is cancelled and the run is complete.
CREATE FUNCTION stop_at_limit(p_now bigint, p_run integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM runs r, LATERAL (SELECT sum(done + dead + discarded - aside) AS used, sum(ready + leased) AS open FROM counters WHERE run = r.id) c
  WHERE r.id = p_run AND r.max_pages > 0 AND r.state IN ('running', 'paused') AND c.used >= r.max_pages AND c.open > 0;
  IF FOUND THEN
    PERFORM cancel_run(p_now, p_run, 'finished');
  END IF;
END
$$;

-- Tasks have left these lanes, one place each, and their leases, which go when they hold nothing more.
CREATE FUNCTION leave_lanes(p_lanes integer[], p_leases bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH freed AS (
    UPDATE lanes l SET in_flight = l.in_flight - c.n FROM (SELECT lane, count(*) AS n FROM unnest(p_lanes) u(lane) GROUP BY lane) c WHERE l.id = c.lane
    RETURNING l.id, l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until
  )
  UPDATE run_lanes h SET wake_at = wake_time(h.ready, f.max_in_flight, f.in_flight, f.parked, f.next_at, f.held_until)
  FROM freed f
  WHERE (f.max_in_flight > 0 OR f.parked > 0) AND h.lane = f.id
    AND is_sooner(wake_time(h.ready, f.max_in_flight, f.in_flight, f.parked, f.next_at, f.held_until), h.wake_at);
  DELETE FROM leases x WHERE x.number = ANY (p_leases) AND NOT EXISTS (SELECT 1 FROM leased WHERE lease = x.number);
END
$$;

-- One task at most once per call. p_counts says how many records each outcome brings; records and found tasks
-- name their outcome by position. p_changes, p_skips and p_outbox are JSON: [position, …]. p_totals is what
-- all count together, p_counters what each does: [position, [name, number]]. p_plain: all are done, and nothing
-- but records came of them; then p_results to p_same are empty.
CREATE FUNCTION settle(p_now bigint, p_plain boolean, p_runs integer[], p_tasks bigint[], p_leases bigint[], p_attempts text[], p_sizes bigint[], p_counts integer[],
                       p_results smallint[], p_afters bigint[], p_causes text[], p_evidence text[], p_same bytea[],
                       p_record_of integer[], p_records text[],
                       p_found_of integer[], p_digests bytea[], p_lanes text[], p_urls text[], p_kinds text[], p_priorities bigint[], p_bands smallint[],
                       p_depths integer[], p_parents bigint[], p_metas text[], p_request_options text[], p_auto_acks boolean[], p_needs smallint[], p_delays bigint[], p_ttls bigint[],
                       p_pace_lanes text[], p_pace_spacings bigint[], p_pace_places integer[], p_spacing bigint, p_place integer,
                       p_changes json, p_skips json, p_outbox json, p_totals json, p_counters json)
RETURNS smallint[] LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_now bigint;
  v_open integer[];
  v_keeping integer[];  -- cancelled, which can still be undone
  v_limited boolean;
  v_held integer[];
  v_lanes integer[];
  v_ask_runs integer[]; v_ask_names text[]; v_ask_lanes integer[]; v_ask_spacings bigint[]; v_ask_places integer[];
  v_names text[] := '{}';
  v_dropped integer[] := '{}';
  v_fresh boolean := false;
  v_idle boolean := false;
  v_batch bigint;
  v_failing boolean := EXISTS (SELECT 1 FROM failing);
  v_well uuid[];  -- URLs that went well
  v_admitted integer[]; v_found_runs integer[];
  v_gone_ord integer[]; v_gone_run integer[]; v_gone_lane integer[]; v_gone_needs smallint[]; v_gone_live boolean[]; v_gone_back boolean[]; v_gone_result smallint[];
  v_aside integer[];  -- of a built-in kind
  v_verdicts smallint[];
  v record;
BEGIN
  PERFORM lock_runs(p_runs);
  IF p_plain THEN
    p_results := array_fill(0::smallint, ARRAY[cardinality(p_tasks)]);
  END IF;
  SELECT array_agg(id) FILTER (WHERE state IN ('running', 'paused')), bool_or(max_pages > 0) FILTER (WHERE state IN ('running', 'paused')),
         array_agg(id) FILTER (WHERE undo_until > clock_micros(p_now)) INTO v_open, v_limited, v_keeping
  FROM runs WHERE id = ANY (p_runs);
  IF NOT p_plain THEN
    v_lanes := ARRAY(SELECT DISTINCT lane FROM leased WHERE id = ANY (p_tasks));
  END IF;
  IF cardinality(v_lanes) > 0 THEN
    -- By the key: all tasks of a batch have the same lease, which the planner does not expect.
    v_held := ARRAY(SELECT o.ord::integer FROM unnest(p_tasks, p_leases) WITH ORDINALITY o(task, lease, ord) JOIN leased l ON l.id = o.task AND l.lease + 0 = o.lease);
    IF cardinality(p_found_of) > 0 THEN
      -- Lanes are only touched where something is new: a task, a lane of the run, or its pace.
      SELECT array_agg(x.run), array_agg(x.lane), array_agg(x.spacing), array_agg(x.places), coalesce(bool_or(x.fresh), false)
      INTO v_ask_runs, v_ask_names, v_ask_spacings, v_ask_places, v_fresh
      FROM (
        SELECT f.run, f.lane, f.fresh, p.spacing, p.places, h.run IS NULL OR (h.spacing, h.max_in_flight) <> (p.spacing, p.places) AS news
        FROM (
          SELECT (p_tasks[u.of] >> 32)::integer AS run, u.lane,
                 bool_or(NOT EXISTS (SELECT 1 FROM seen s WHERE s.run = (p_tasks[u.of] >> 32)::integer AND s.digest = u.digest)) AS fresh
          FROM unnest(p_found_of, p_digests, p_lanes) u(of, digest, lane)
          WHERE u.of = ANY (v_held) AND (p_tasks[u.of] >> 32)::integer = ANY (v_open)
          GROUP BY 1, 2
        ) f
        LEFT JOIN unnest(p_pace_lanes, p_pace_spacings, p_pace_places) p(lane, spacing, places) ON p.lane = f.lane
        LEFT JOIN lanes l ON l.name = f.lane LEFT JOIN run_lanes h ON h.lane = l.id AND h.run = f.run AND h.needs = 0
      ) x WHERE x.fresh OR (x.spacing IS NOT NULL AND x.news);
      v_names := coalesce(v_ask_names, '{}');
    END IF;
    IF p_changes IS NOT NULL THEN
      v_names := v_names || ARRAY(SELECT value ->> 1 FROM json_array_elements(p_changes) WHERE (value ->> 0)::integer = ANY (v_held));
    END IF;
    IF cardinality(v_names) > 0 THEN
      PERFORM make_lanes(v_names);
      v_lanes := v_lanes || ARRAY(SELECT id FROM lanes WHERE name = ANY (v_names));
    END IF;
  END IF;
  IF NOT p_plain THEN
    PERFORM lock_lanes(v_lanes);
  END IF;
  v_now := clock_micros(p_now);
  IF NOT p_plain THEN
    v_idle := is_idle(v_now, p_runs);
    IF EXISTS (SELECT 1 FROM unnest(p_same) s WHERE s IS NOT NULL) THEN
      -- Whether the URL a redirect led to is this task's to record; if it is new, it becomes so.
      INSERT INTO seen (run, digest, task)
      SELECT DISTINCT ON (l.run, o.same) l.run, o.same, -l.id
      FROM unnest(p_tasks, p_leases, p_results, p_same) WITH ORDINALITY o(task, lease, result, same, ord) JOIN leased l ON l.id = o.task AND l.lease + 0 = o.lease
      WHERE o.result = 0 AND o.same IS NOT NULL ORDER BY l.run, o.same, o.ord
      ON CONFLICT DO NOTHING;
      v_dropped := ARRAY(
        SELECT o.ord::integer FROM unnest(p_tasks, p_results, p_same) WITH ORDINALITY o(task, result, same, ord)
        JOIN seen s ON s.run = (o.task >> 32)::integer AND s.digest = o.same
        WHERE o.result = 0 AND abs(s.task) <> o.task);
    END IF;
  END IF;
  IF cardinality(p_records) > 0 THEN
    v_batch := nextval('batch_numbers');
  END IF;
  IF p_plain THEN
    WITH o AS MATERIALIZED (
      SELECT * FROM unnest(p_tasks, p_leases, p_attempts, p_counts) WITH ORDINALITY u(task, lease, attempt, records, ord)
    ), gone AS (
      DELETE FROM leased l USING o WHERE l.id = o.task AND l.lease + 0 = o.lease RETURNING l.*, o.ord::integer AS ord, o.attempt, o.records
    ), ends AS (
      INSERT INTO ended (id, state, lease, returned_lease, lane, ended_at, added_at, attempts, lost, priority, depth, parent, digest, records, kind, url, cause, history, batch)
      SELECT id, 'done', lease, returned_lease, lane, v_now, added_at, attempts + 1, lost, priority, depth, parent, digest, records, kind, url, '',
             CASE WHEN history IS NULL THEN '[' || attempt || ']' ELSE append_attempt(history, attempt) END, CASE WHEN records > 0 THEN v_batch END
      FROM gone
    ), batch AS (
      INSERT INTO batches (run, id, size, tasks, data)
      SELECT g.run, v_batch, count(*), array_agg(g.id ORDER BY r.n), array_agg(r.data ORDER BY r.n)
      FROM unnest(p_record_of, p_records) WITH ORDINALITY r(of, data, n) JOIN gone g ON g.ord = r.of GROUP BY g.run
    )
    SELECT array_agg(ord), array_agg(run), array_agg(lane), array_agg(NOT cancelled), array_agg(failure_key(url, request_options)) FILTER (WHERE v_failing), array_agg(ord) FILTER (WHERE is_aside(kind))
    INTO v_gone_ord, v_gone_run, v_gone_lane, v_gone_live, v_well, v_aside FROM gone;
    IF v_failing THEN
      DELETE FROM failing WHERE key = ANY (v_well);
    END IF;
    -- Only now, so that claims wait for as short a time as may be: what was done so far concerns nobody but who holds the leases.
    PERFORM lock_lanes(v_gone_lane);
    IF cardinality(v_gone_ord) = cardinality(p_tasks) AND cardinality(p_runs) = 1 AND NOT false = ANY (v_gone_live) THEN
      -- What is true of most calls: one run, all as it was handed out.
      PERFORM leave_lanes(v_gone_lane, p_leases);
      PERFORM add_counters(p_runs[1], p_leased => -cardinality(p_tasks), p_done => cardinality(p_tasks), p_records => cardinality(p_records),
                    p_bytes => (SELECT sum(size)::bigint FROM unnest(p_sizes) size), p_aside => coalesce(cardinality(v_aside), 0));
      IF p_totals IS NOT NULL THEN
        PERFORM count_up(p_totals);
      END IF;
      IF v_limited THEN
        PERFORM stop_at_limit(v_now, p_runs[1]);
      END IF;
      RETURN array_fill(0::smallint, ARRAY[cardinality(p_tasks)]);
    END IF;
  ELSE
    WITH o AS MATERIALIZED (
      SELECT * FROM unnest(p_tasks, p_leases, p_results, p_attempts, p_sizes, p_afters, p_causes, p_evidence, p_counts)
      WITH ORDINALITY u(task, lease, result, attempt, size, after, cause, evidence, records, ord)
    ), gone AS (
      DELETE FROM leased l USING o WHERE l.id = o.task AND l.lease + 0 = o.lease AND o.result <> 5
      RETURNING l.*, o.ord::integer AS ord, o.attempt, o.size, o.after, o.cause, o.evidence, o.records,
                CASE WHEN l.cancelled AND o.result <> 0 AND (l.run = ANY (v_keeping) AND (o.result = 3 OR (o.result = 1 AND NOT l.auto_ack))) IS NOT TRUE THEN 4 WHEN l.auto_ack AND o.result = 1 THEN 2 ELSE o.result END AS result
    ), told AS MATERIALIZED (
      SELECT *, CASE WHEN history IS NULL THEN '[' || attempt || ']' ELSE append_attempt(history, attempt) END AS past,
             CASE WHEN result = 0 AND NOT ord = ANY (v_dropped) THEN records ELSE 0 END AS kept FROM gone
    ), ends AS (
      INSERT INTO ended (id, state, lease, returned_lease, lane, ended_at, added_at, attempts, lost, priority, depth, parent, digest, records, kind, url, cause, history, batch)
      SELECT id, CASE result WHEN 0 THEN 'done' ELSE 'cancelled' END, lease, returned_lease, lane, v_now, added_at, attempts + 1, lost, priority, depth, parent, digest,
             kept, kind, url, cause, past, CASE WHEN kept > 0 THEN v_batch END
      FROM told WHERE result IN (0, 4)
    ), dead_lettered AS (
      INSERT INTO dead (id, lease, returned_lease, lane, band, ended_at, added_at, expires_at, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, cause, history, evidence)
      SELECT id, lease, returned_lease, lane, band, v_now, added_at, expires_at, attempts + 1, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, cause, past, evidence
      FROM told WHERE result = 2
    ), back AS (
      INSERT INTO ready (id, run, lane, claim_band, band, due, added_at, expires_at, returned_lease, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, history)
      SELECT id, run, lane, CASE WHEN lost > 0 THEN -1 ELSE band END, band, CASE result WHEN 3 THEN due ELSE v_now END, added_at, expires_at, lease,
             CASE result WHEN 3 THEN attempts ELSE attempts + 1 END, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs,
             CASE result WHEN 3 THEN history ELSE past END
      FROM told WHERE result IN (1, 3) AND after <= 0
    ), later AS (
      INSERT INTO delayed (id, run, lane, claim_band, band, due, added_at, expires_at, returned_lease, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, history)
      SELECT id, run, lane, CASE WHEN lost > 0 THEN -1 ELSE band END, band, v_now + after, added_at, expires_at, lease, CASE result WHEN 3 THEN attempts ELSE attempts + 1 END, lost, priority, depth, parent, digest,
             kind, url, meta, request_options, auto_ack, needs, CASE result WHEN 3 THEN history ELSE past END
      FROM told WHERE result IN (1, 3) AND after > 0
    ), batch AS (
      INSERT INTO batches (run, id, size, tasks, data)
      SELECT g.run, v_batch, count(*), array_agg(g.id ORDER BY r.n), array_agg(r.data ORDER BY r.n)
      FROM unnest(p_record_of, p_records) WITH ORDINALITY r(of, data, n) JOIN told g ON g.ord = r.of WHERE g.kept > 0 GROUP BY g.run
    )
    SELECT array_agg(ord), array_agg(run), array_agg(lane), array_agg(needs), array_agg(NOT cancelled), array_agg(result IN (1, 3) AND after <= 0), array_agg(result::smallint),
           array_agg(failure_key(url, request_options)) FILTER (WHERE v_failing AND result = 0), array_agg(ord) FILTER (WHERE is_aside(kind))
    INTO v_gone_ord, v_gone_run, v_gone_lane, v_gone_needs, v_gone_live, v_gone_back, v_gone_result, v_well, v_aside FROM gone;
    IF v_failing THEN
      DELETE FROM failing WHERE key = ANY (v_well);
    END IF;
  END IF;
  v_verdicts := ARRAY(
    SELECT CASE WHEN o.ord = ANY (v_gone_ord) THEN 0
                WHEN o.result = 5 AND EXISTS (SELECT 1 FROM leased WHERE id = o.task AND lease + 0 = o.lease) THEN 0
                WHEN EXISTS (SELECT 1 FROM ended WHERE id = o.task AND o.lease IN (lease, returned_lease))
                  OR EXISTS (SELECT 1 FROM dead WHERE id = o.task AND o.lease IN (lease, returned_lease))
                  OR EXISTS (SELECT 1 FROM ready WHERE id = o.task AND returned_lease = o.lease)
                  OR EXISTS (SELECT 1 FROM delayed WHERE id = o.task AND returned_lease = o.lease)
                  OR EXISTS (SELECT 1 FROM leased WHERE id = o.task AND returned_lease = o.lease) THEN 1
                ELSE 2 END
    FROM unnest(p_tasks, p_leases, p_results) WITH ORDINALITY o(task, lease, result, ord) ORDER BY o.ord);
  IF v_gone_ord IS NOT NULL THEN
    IF true = ANY (v_gone_back) THEN
      UPDATE run_lanes h SET ready = h.ready + c.n, kept = h.kept + c.kept
      FROM (SELECT run, lane, needs, count(*) FILTER (WHERE live) AS n, count(*) FILTER (WHERE NOT live) AS kept
            FROM unnest(v_gone_run, v_gone_lane, v_gone_needs, v_gone_back, v_gone_live) u(run, lane, needs, back, live) WHERE back GROUP BY run, lane, needs) c
      WHERE h.run = c.run AND h.lane = c.lane AND h.needs = c.needs;
    END IF;
    PERFORM leave_lanes(ARRAY(SELECT lane FROM unnest(v_gone_lane, v_gone_live) u(lane, live) WHERE live), p_leases);
  END IF;
  FOR v IN
    SELECT r.id AS run, c.* FROM (
      SELECT (o.task >> 32)::integer AS of_run,
             count(*) FILTER (WHERE o.verdict = 2) AS stale,
             sum(o.size) FILTER (WHERE g.live IS NOT NULL)::bigint AS bytes,
             count(*) FILTER (WHERE g.live) AS freed,
             count(*) FILTER (WHERE g.live IS NOT NULL AND o.result = 0) AS done,
             count(*) FILTER (WHERE NOT g.live AND o.result = 0) AS undone,
             count(*) FILTER (WHERE g.live IS NOT NULL AND o.result = 0 AND o.ord::integer = ANY (v_aside)) AS aside,
             count(*) FILTER (WHERE g.live AND o.result = 4) AS cancelled,
             count(*) FILTER (WHERE g.live AND g.result = 2) AS dead,
             count(*) FILTER (WHERE g.live AND g.result IN (1, 3)) AS back,
             count(*) FILTER (WHERE g.result = 1) AS retries,
             count(*) FILTER (WHERE NOT g.live AND g.result IN (1, 3)) AS kept,
             count(*) FILTER (WHERE NOT g.live AND g.result IN (1, 3) AND o.after > 0) AS kept_late,
             count(*) FILTER (WHERE g.live AND g.result IN (1, 3) AND o.after > 0) AS late,
             sum(o.records) FILTER (WHERE g.live IS NOT NULL AND o.result = 0 AND NOT o.ord::integer = ANY (v_dropped))::bigint AS records
      FROM unnest(p_tasks, p_results, p_sizes, p_afters, p_counts, v_verdicts) WITH ORDINALITY o(task, result, size, after, records, verdict, ord)
      LEFT JOIN unnest(v_gone_ord, v_gone_live, v_gone_result) g(ord, live, result) ON g.ord = o.ord
      GROUP BY 1) c
    JOIN runs r ON r.id = c.of_run ORDER BY r.id
  LOOP
    PERFORM add_counters(v.run, 0, v.back, v.late, -v.freed, v.done, v.dead, v.cancelled - v.undone, coalesce(v.records, 0), v.retries, 0, v.stale, coalesce(v.bytes, 0), p_aside => v.aside);
    IF v.kept > 0 THEN
      UPDATE runs SET kept_ready = kept_ready + v.kept, kept_delayed = kept_delayed + v.kept_late WHERE id = v.run;
    END IF;
  END LOOP;
  IF v_ask_runs IS NOT NULL THEN
    v_ask_lanes := ARRAY(SELECT l.id FROM unnest(v_ask_names) WITH ORDINALITY u(name, n) JOIN lanes l ON l.name = u.name ORDER BY u.n);
    PERFORM set_run_paces(v_ask_runs, v_ask_lanes, v_ask_spacings, v_ask_places, p_spacing, p_place);
  END IF;
  IF v_fresh THEN
    SELECT admit(v_now, x.runs, x.digests, x.lanes, x.urls, x.kinds, x.priorities, x.bands, x.depths, x.parents, x.metas, x.request_options, x.auto_acks, x.needs, x.delays, x.ttls), x.runs
    INTO v_admitted, v_found_runs FROM (
      SELECT array_agg(f.run ORDER BY ord) AS runs, array_agg(digest ORDER BY ord) AS digests, array_agg(lane ORDER BY ord) AS lanes, array_agg(url ORDER BY ord) AS urls,
             array_agg(kind ORDER BY ord) AS kinds, array_agg(priority ORDER BY ord) AS priorities, array_agg(band ORDER BY ord) AS bands,
             array_agg(depth ORDER BY ord) AS depths, array_agg(parent ORDER BY ord) AS parents, array_agg(meta ORDER BY ord) AS metas,
             array_agg(request_options ORDER BY ord) AS request_options, array_agg(auto_ack ORDER BY ord) AS auto_acks, array_agg(needs ORDER BY ord) AS needs, array_agg(delay ORDER BY ord) AS delays, array_agg(ttl ORDER BY ord) AS ttls
      FROM (
        SELECT (p_tasks[u.of] >> 32)::integer AS run, u.*
        FROM unnest(p_found_of, p_digests, p_lanes, p_urls, p_kinds, p_priorities, p_bands, p_depths, p_parents, p_metas, p_request_options, p_auto_acks, p_needs, p_delays, p_ttls)
             WITH ORDINALITY u(of, digest, lane, url, kind, priority, band, depth, parent, meta, request_options, auto_ack, needs, delay, ttl, ord)
        WHERE v_verdicts[u.of] = 0 AND p_results[u.of] IN (0, 5) AND NOT u.of = ANY (v_dropped) AND (p_tasks[u.of] >> 32)::integer = ANY (v_open)
      ) f
      WHERE NOT EXISTS (SELECT 1 FROM seen s WHERE s.run = f.run AND s.digest = f.digest)
    ) x WHERE x.runs IS NOT NULL;
    IF 0 > ANY (v_admitted) THEN
      INSERT INTO skips AS s (run, reason, shard, count)
      SELECT v_found_runs[-ord], 'seen', pg_backend_pid() % 32, count(*) FROM unnest(v_admitted) ord WHERE ord < 0 GROUP BY 1 ORDER BY 1
      ON CONFLICT (run, reason, shard) DO UPDATE SET count = s.count + excluded.count;
    END IF;
  END IF;
  IF p_changes IS NOT NULL THEN
    PERFORM change_lanes(v_now, x.changes)
    FROM (SELECT json_agg(json_build_array(value -> 1, value -> 2, value -> 3, value -> 4, value -> 5, value -> 6, value -> 7) ORDER BY n) AS changes
          FROM json_array_elements(p_changes) WITH ORDINALITY c(value, n) WHERE v_verdicts[(value ->> 0)::integer] = 0) x
    WHERE x.changes IS NOT NULL;
  END IF;
  IF p_totals IS NOT NULL THEN
    IF cardinality(v_dropped) > 0 OR 1 = ANY (v_verdicts) OR 2 = ANY (v_verdicts) THEN
      -- Some were not taken, or not with their records: the others are summed here.
      SELECT json_agg(json_build_array(x.run, x.counts)) INTO p_totals FROM (
        SELECT y.run, json_object_agg(y.name, y.n ORDER BY y.at) AS counts FROM (
          SELECT (p_tasks[(c.value ->> 0)::integer] >> 32)::integer AS run, e.value ->> 0 AS name, sum((e.value ->> 1)::bigint) AS n, min(c.n * 100000 + e.n) AS at
          FROM json_array_elements(p_counters) WITH ORDINALITY c(value, n) CROSS JOIN LATERAL json_array_elements(c.value -> 1) WITH ORDINALITY e(value, n)
          WHERE v_verdicts[(c.value ->> 0)::integer] = 0 AND p_results[(c.value ->> 0)::integer] <> 5
            AND ((p_results[(c.value ->> 0)::integer] = 0 AND NOT (c.value ->> 0)::integer = ANY (v_dropped)) OR NOT starts_with(e.value ->> 0, 'field.'))
          GROUP BY 1, 2) y
        GROUP BY y.run) x;
    END IF;
    PERFORM count_up(p_totals) WHERE p_totals IS NOT NULL;
  END IF;
  IF p_outbox IS NOT NULL THEN
    FOR v IN
      SELECT (p_tasks[(value ->> 0)::integer] >> 32)::integer AS run, json_agg(json_build_array(value -> 1, value -> 2, value -> 3) ORDER BY n) AS entries
      FROM json_array_elements(p_outbox) WITH ORDINALITY c(value, n)
      WHERE v_verdicts[(value ->> 0)::integer] = 0 AND p_results[(value ->> 0)::integer] = 0 AND NOT (value ->> 0)::integer = ANY (v_dropped)
        AND (value ->> 0)::integer IN (SELECT u.ord FROM unnest(v_gone_ord, v_gone_live) u(ord, live) WHERE u.live)
        AND (p_tasks[(value ->> 0)::integer] >> 32)::integer = ANY (v_open)
      GROUP BY 1 ORDER BY 1
    LOOP
      PERFORM add_entries(v.run, v.entries);
    END LOOP;
  END IF;
  IF p_skips IS NOT NULL THEN
    FOR v IN
      SELECT r.id AS run, s.reason, s.urls FROM (
        SELECT (p_tasks[(value ->> 0)::integer] >> 32)::integer AS of_run, value ->> 1 AS reason, array_agg(value ->> 2 ORDER BY n) AS urls
        FROM json_array_elements(p_skips) WITH ORDINALITY c(value, n) WHERE v_verdicts[(value ->> 0)::integer] = 0 GROUP BY 1, 2) s
      JOIN runs r ON r.id = s.of_run ORDER BY r.id, s.reason
    LOOP
      PERFORM record_skips(v.run, v.reason, v.urls);
    END LOOP;
  END IF;
  IF NOT p_plain THEN
    PERFORM wake(v_lanes);
    IF v_idle AND (v_fresh OR true = ANY (v_gone_back)) THEN
      PERFORM notify_workers();
    END IF;
  END IF;
  IF v_limited THEN
    FOR v IN SELECT id FROM runs WHERE id = ANY (v_open) AND max_pages > 0 ORDER BY id LOOP
      PERFORM stop_at_limit(v_now, v.id);
    END LOOP;
  END IF;
  RETURN v_verdicts;
END
$$;

-- Settle, and answer when it is durable, though its locks are given back before: whoever builds on it cannot become durable earlier.
-- It takes what settle takes. Not within a transaction of the caller's.
DO $do$
DECLARE
  v_words text;
  v_names text;
BEGIN
  SELECT pg_get_function_arguments(oid), array_to_string(proargnames, ', ') INTO v_words, v_names FROM pg_proc WHERE oid = 'settle'::regproc;
  EXECUTE format($make$
CREATE PROCEDURE settle_early(%1$s, INOUT o_verdicts smallint[]) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  o_verdicts := %2$I.settle(%3$s);
  COMMIT;
  PERFORM pg_logical_emit_message(true, 'shoal', '');  -- a commit that has something to write waits for the disk, and all before it is there, too
END
$$ $make$, v_words, current_schema(), v_names);
END $do$;
