-- Import: what another queue exported is taken over. Repeating it is harmless.

-- The next record is numbered after these, though they may not be here.
CREATE FUNCTION skip_records(p_run integer, p_last bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_last > 0 AND NOT EXISTS (SELECT 1 FROM batches WHERE run = p_run AND first + size > p_last) THEN
    INSERT INTO batches (run, id, size, first, tasks, data) VALUES (p_run, 0, 0, p_last + 1, '{}', '{}')
    ON CONFLICT (run, id) DO UPDATE SET first = excluded.first;
  END IF;
END
$$;

-- False when the run is not paused. p_names are lanes, each once, with what the run asks of them. States are
-- 0 ready, 1 done, 2 dead, 3 cancelled, 4 seen, 5 discarded. Other identities are (p_alias_of, p_aliases), by position. p_counts is
-- [retries, lost, stale, bytes, trimmed, {reason: skipped}] or NULL.
CREATE FUNCTION import_run(p_now bigint, p_run integer, p_names text[], p_spacings bigint[], p_places integer[], p_spacing bigint, p_place integer,
                         p_numbers bigint[], p_states smallint[], p_digests bytea[], p_lanes text[], p_urls text[], p_kinds text[],
                         p_priorities bigint[], p_bands smallint[], p_depths integer[], p_parents bigint[], p_metas text[], p_request_options text[], p_auto_acks boolean[], p_needs smallint[], p_delays bigint[], p_ttls bigint[],
                         p_attempts integer[], p_lost integer[], p_added bigint[], p_ended bigint[], p_causes text[], p_histories text[], p_evidence text[],
                         p_firsts bigint[], p_records integer[], p_alias_of integer[], p_aliases bytea[],
                         p_seqs bigint[], p_record_tasks bigint[], p_data text[], p_counts json, p_counters json)
RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET shoal.importing = 'on' AS $$
DECLARE
  v_now bigint;
  v_base bigint := p_run::bigint << 32;
  v_lanes integer[];
  v_more bigint;
  v_trimmed bigint;
  v record;
BEGIN
  PERFORM pg_advisory_xact_lock(lock_namespace(), p_run);
  PERFORM 1 FROM runs WHERE id = p_run AND state = 'paused';
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM make_lanes(p_names);
  v_lanes := ARRAY(SELECT l.id FROM unnest(p_names) WITH ORDINALITY u(name, n) JOIN lanes l ON l.name = u.name ORDER BY u.n);
  PERFORM lock_lanes(v_lanes);
  v_now := clock_micros(p_now);
  PERFORM set_run_paces(array_fill(p_run, ARRAY[cardinality(v_lanes)]), v_lanes, p_spacings, p_places, p_spacing, p_place);
  IF EXISTS (SELECT 1 FROM runs WHERE seen_set <> '' AND id = p_run) THEN
    PERFORM join_seen_sets(v_now, array_fill(p_run, ARRAY[cardinality(p_digests)]), p_digests, NULL);
  END IF;
  IF 0 < ANY (p_needs) THEN
    PERFORM make_places(array_fill(p_run, ARRAY[cardinality(p_needs)]), p_lanes, p_needs);
  END IF;
  FOR v IN
    WITH given AS MATERIALIZED (
      SELECT u.*, v_base | u.number AS id, v_base | u.parent AS parent_id, l.id AS lane_id, u.state = 0 AND u.delay > 0 AS late
      FROM unnest(p_numbers, p_states, p_digests, p_lanes, p_urls, p_kinds, p_priorities, p_bands, p_depths, p_parents, p_metas, p_request_options, p_auto_acks, p_needs, p_delays, p_ttls,
                  p_attempts, p_lost, p_added, p_ended, p_causes, p_histories, p_evidence, p_firsts, p_records)
           WITH ORDINALITY u(number, state, digest, lane, url, kind, priority, band, depth, parent, meta, request_options, auto_ack, needs, delay, ttl,
                             attempts, lost, added_at, ended_at, cause, history, evidence, first_record, records, ord)
      LEFT JOIN lanes l ON l.name = u.lane
    ), known AS (
      INSERT INTO seen (run, digest, task) SELECT p_run, digest, id FROM given ORDER BY digest ON CONFLICT DO NOTHING RETURNING task
    ), elsewhere AS (
      INSERT INTO seen (run, digest, task) SELECT DISTINCT ON (a.digest) p_run, a.digest, -g.id
      FROM unnest(p_alias_of, p_aliases) a(of, digest) JOIN given g ON g.ord = a.of ORDER BY a.digest ON CONFLICT DO NOTHING
    ), fresh AS MATERIALIZED (
      SELECT g.* FROM known k JOIN given g ON g.id = k.task
    ), put AS (
      INSERT INTO ready (id, run, lane, claim_band, band, due, added_at, expires_at, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, history)
      SELECT id, p_run, lane_id, CASE WHEN lost > 0 THEN -1 ELSE band END, band, v_now, added_at, v_now + ttl, attempts, lost, priority, depth, parent_id, digest, kind, url, meta, request_options, auto_ack, needs, history
      FROM fresh WHERE state = 0 AND NOT late
    ), put_later AS (
      INSERT INTO delayed (id, run, lane, claim_band, band, due, added_at, expires_at, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, history)
      SELECT id, p_run, lane_id, CASE WHEN lost > 0 THEN -1 ELSE band END, band, v_now + delay, added_at, v_now + ttl, attempts, lost, priority, depth, parent_id, digest, kind, url, meta, request_options, auto_ack, needs, history
      FROM fresh WHERE late
    ), ends AS (
      INSERT INTO ended (id, state, lease, returned_lease, lane, ended_at, added_at, attempts, lost, priority, depth, parent, digest, records, kind, url, cause, history, first_record)
      SELECT id, CASE state WHEN 1 THEN 'done' ELSE 'cancelled' END, 0, 0, lane_id, ended_at, added_at, attempts, lost, priority, depth, parent_id, digest, records, kind, url, cause, history,
             nullif(first_record, 0)
      FROM fresh WHERE state IN (1, 3)
    ), dead_lettered AS (
      INSERT INTO dead (id, lease, returned_lease, lane, band, ended_at, added_at, expires_at, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, cause, history, evidence)
      SELECT id, 0, 0, lane_id, band, ended_at, added_at, v_now + ttl, attempts, lost, priority, depth, parent_id, digest, kind, url, meta, request_options, auto_ack, needs, cause, history, evidence
      FROM fresh WHERE state = 2
    ), removed AS (
      INSERT INTO discarded SELECT id FROM fresh WHERE state = 5
    ), counted AS (
      UPDATE run_lanes h SET ready = h.ready + c.n
      FROM (SELECT lane_id, needs, count(*) AS n FROM fresh WHERE state = 0 AND NOT late GROUP BY lane_id, needs) c WHERE h.run = p_run AND h.lane = c.lane_id AND h.needs = c.needs
    )
    SELECT count(*) AS seen, count(*) FILTER (WHERE state = 0) AS ready, count(*) FILTER (WHERE late) AS late, count(*) FILTER (WHERE state = 1) AS done,
           count(*) FILTER (WHERE state = 1 AND is_aside(kind)) AS aside,
           count(*) FILTER (WHERE state = 2) AS dead, count(*) FILTER (WHERE state IN (3, 4)) AS cancelled, count(*) FILTER (WHERE state = 5) AS discarded, coalesce(bool_or(state = 4), false) AS identity_only
    FROM fresh
  LOOP
    PERFORM add_counters(p_run, p_seen => v.seen, p_ready => v.ready, p_delayed => v.late, p_done => v.done, p_dead => v.dead, p_cancelled => v.cancelled, p_discarded => v.discarded, p_aside => v.aside);
    UPDATE runs SET bands = bands | (SELECT coalesce(bit_or(1 << band), 0) FROM unnest(p_bands) band) WHERE id = p_run;
    UPDATE runs SET identity_only = true WHERE id = p_run AND v.identity_only AND NOT identity_only;
  END LOOP;
  IF cardinality(p_numbers) > 0 THEN
    PERFORM setval('task_numbers', greatest((SELECT max(n) FROM unnest(p_numbers) n), nextval('task_numbers')));
    PERFORM skip_records(p_run, (SELECT max(f + n - 1) FROM unnest(p_firsts, p_records) u(f, n) WHERE f > 0));
  END IF;
  IF cardinality(p_seqs) > 0 THEN
    PERFORM number_batches(p_run);
    WITH fresh AS (
      SELECT u.*, u.seq - row_number() OVER (ORDER BY u.seq) AS island FROM unnest(p_seqs, p_record_tasks, p_data) u(seq, task, data)
      WHERE NOT EXISTS (SELECT 1 FROM batches b WHERE b.run = p_run AND b.first <= u.seq AND b.first + b.size > u.seq)
    ), put AS (
      INSERT INTO batches (run, id, size, first, tasks, data)
      SELECT p_run, nextval('batch_numbers'), count(*), min(seq), array_agg(v_base | task ORDER BY seq), array_agg(data ORDER BY seq) FROM fresh GROUP BY island RETURNING size
    )
    SELECT sum(size) INTO v_more FROM put;
    PERFORM add_counters(p_run, p_records => coalesce(v_more, 0));
  END IF;
  IF p_counts IS NOT NULL THEN
    SELECT coalesce(sum(trimmed), 0) INTO v_trimmed FROM counters WHERE run = p_run;
    UPDATE counters SET retries = 0, lost = 0, stale = 0, bytes = 0, trimmed = 0 WHERE run = p_run;
    PERFORM add_counters(p_run, p_retries => (p_counts ->> 0)::bigint, p_lost => (p_counts ->> 1)::bigint, p_stale => (p_counts ->> 2)::bigint, p_bytes => (p_counts ->> 3)::bigint,
                  p_trimmed => (p_counts ->> 4)::bigint, p_records => (p_counts ->> 4)::bigint - v_trimmed);
    PERFORM skip_records(p_run, (p_counts ->> 4)::bigint);
    DELETE FROM skips WHERE run = p_run;
    INSERT INTO skips (run, reason, shard, count) SELECT p_run, key, 0, value::bigint FROM json_each_text(p_counts -> 5);
  END IF;
  IF p_counters IS NOT NULL THEN
    DELETE FROM run_counters WHERE run = p_run;
    INSERT INTO run_counters (run, counts) VALUES (p_run, p_counters);
  END IF;
  PERFORM wake(v_lanes);
  RETURN true;
END
$$;
