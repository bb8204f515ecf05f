-- Admit: many tasks into the queue at once, each at most once per run.

-- Put tasks that are new to their runs into the seen-sets of these. Answers those (counted from 1) that other runs have had.
CREATE FUNCTION join_seen_sets(p_now bigint, p_runs integer[], p_digests bytea[], p_revisits boolean[]) RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
  v_ords integer[];
BEGIN
  INSERT INTO seen_sets (name, seen_for, created_at, swept_at)
  SELECT DISTINCT ON (r.seen_set) r.seen_set, r.seen_for, p_now, p_now FROM unnest(p_runs, p_digests) u(run, digest)
  JOIN runs r ON r.id = u.run AND r.seen_set <> '' AND NOT EXISTS (SELECT 1 FROM seen_sets s WHERE s.name = r.seen_set)
  WHERE NOT EXISTS (SELECT 1 FROM seen k WHERE k.run = u.run AND k.digest = u.digest) ORDER BY r.seen_set
  ON CONFLICT DO NOTHING;
  WITH given AS MATERIALIZED (
    SELECT u.ord::integer AS ord, u.run, u.digest, coalesce(u.revisit, false) AS revisit, s.id AS seen_set,
           (greatest(0, p_now - s.created_at) / 3600000000)::integer AS hour,
           CASE WHEN s.seen_for > 0 THEN greatest(0, p_now - s.created_at - s.seen_for) / 3600000000 ELSE 0 END AS oldest
    FROM unnest(p_runs, p_digests, p_revisits) WITH ORDINALITY u(run, digest, revisit, ord)
    JOIN runs r ON r.id = u.run AND r.seen_set <> '' JOIN seen_sets s ON s.name = r.seen_set
    WHERE NOT EXISTS (SELECT 1 FROM seen k WHERE k.run = u.run AND k.digest = u.digest)
  ), first AS MATERIALIZED (
    SELECT DISTINCT ON (seen_set, digest) seen_set, digest, run, hour, oldest FROM given ORDER BY seen_set, digest, ord
  ), again AS (
    UPDATE seen_entries e SET hour = f.hour FROM first f
    WHERE f.oldest > 0 AND e.seen_set = f.seen_set AND e.digest = f.digest AND e.hour < f.oldest RETURNING e.seen_set, e.digest
  ), joined AS (
    INSERT INTO seen_entries (seen_set, digest, hour) SELECT seen_set, digest, hour FROM first ORDER BY seen_set, digest
    ON CONFLICT DO NOTHING RETURNING seen_set, digest
  ), taken AS (
    SELECT f.seen_set, f.digest, f.run FROM first f JOIN (SELECT * FROM again UNION ALL SELECT * FROM joined) j ON j.seen_set = f.seen_set AND j.digest = f.digest
  ), counted AS (
    INSERT INTO seen_set_counters AS c (seen_set, shard, entries, changed_at)
    SELECT t.seen_set, pg_backend_pid() % 32, (SELECT count(*) FROM joined j WHERE j.seen_set = t.seen_set), p_now FROM (SELECT DISTINCT seen_set FROM taken) t ORDER BY 1
    ON CONFLICT (seen_set, shard) DO UPDATE SET entries = c.entries + excluded.entries, changed_at = excluded.changed_at
  )
  SELECT array_agg(g.ord) INTO v_ords FROM given g LEFT JOIN taken t ON t.seen_set = g.seen_set AND t.digest = g.digest AND t.run = g.run
  WHERE t.run IS NULL AND NOT g.revisit;
  -- Another call of the same run may have been first: such a task is known, not seen.
  RETURN ARRAY(SELECT ord FROM unnest(v_ords) ord WHERE NOT EXISTS (SELECT 1 FROM seen k WHERE k.run = p_runs[ord] AND k.digest = p_digests[ord]));
END
$$;

-- The lanes are locked and the run_lanes are there. Answers which of the tasks (counted from 1) were new; those that other
-- runs of the same seen-set have had are counted below 0. An array that is shorter than the others says that the rest is as usual.
CREATE FUNCTION admit(p_now bigint, p_runs integer[], p_digests bytea[], p_lanes text[], p_urls text[], p_kinds text[],
                      p_priorities bigint[], p_bands smallint[], p_depths integer[], p_parents bigint[],
                      p_metas text[], p_request_options text[], p_auto_acks boolean[], p_needs smallint[], p_delays bigint[], p_ttls bigint[],
                      p_revisits boolean[] DEFAULT NULL)
RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
  v record;
  v_added integer[] := '{}';
  v_seen integer[];
BEGIN
  IF EXISTS (SELECT 1 FROM runs WHERE seen_set <> '' AND id = ANY (p_runs)) THEN
    v_seen := join_seen_sets(p_now, p_runs, p_digests, p_revisits);
    v_added := ARRAY(SELECT -ord FROM unnest(v_seen) ord);
  END IF;
  IF 0 < ANY (p_needs) THEN
    PERFORM make_places(p_runs, p_lanes, p_needs);
  END IF;
  FOR v IN
    WITH fresh AS (
      SELECT DISTINCT ON (u.run, u.digest) u.run, u.digest, u.lane, u.url, u.kind, coalesce(u.priority, 0) AS priority, u.band, coalesce(u.depth, 0) AS depth, u.parent, u.meta, u.request_options,
             coalesce(u.auto_ack, false) AS auto_ack, coalesce(u.needs, 0::smallint) AS needs, coalesce(u.delay, 0) AS delay, u.ttl, u.ord
      FROM unnest(p_runs, p_digests, p_lanes, p_urls, p_kinds, p_priorities, p_bands, p_depths, p_parents, p_metas, p_request_options, p_auto_acks, p_needs, p_delays, p_ttls)
           WITH ORDINALITY u(run, digest, lane, url, kind, priority, band, depth, parent, meta, request_options, auto_ack, needs, delay, ttl, ord)
      WHERE NOT EXISTS (SELECT 1 FROM seen s WHERE s.run = u.run AND s.digest = u.digest) AND (v_seen IS NULL OR NOT u.ord::integer = ANY (v_seen))
      ORDER BY u.run, u.digest, u.ord
    ), numbered AS MATERIALIZED (
      -- Numbers grow in the order of adding, though the seen-set is written in the order of its key.
      SELECT f.*, (f.run::bigint << 32) | nextval('task_numbers') AS id FROM (SELECT * FROM fresh ORDER BY ord) f
    ), known AS (
      INSERT INTO seen (run, digest, task) SELECT run, digest, id FROM numbered ORDER BY run, digest
      ON CONFLICT DO NOTHING RETURNING task
    ), taken AS MATERIALIZED (
      -- Not a join, which would compare each with each: the planner takes a batch for ten rows. So it is looked up in a hash table.
      SELECT n.*, l.id AS lane_id, n.delay > 0 AS late FROM numbered n JOIN lanes l ON l.name = n.lane WHERE (n.id IN (SELECT task FROM known)) IS TRUE
    ), put AS (
      INSERT INTO ready (id, run, lane, claim_band, band, due, added_at, expires_at, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs)
      SELECT id, run, lane_id, band, band, p_now, p_now, p_now + ttl, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs
      FROM taken WHERE NOT late
    ), put_later AS (
      INSERT INTO delayed (id, run, lane, claim_band, band, due, added_at, expires_at, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs)
      SELECT id, run, lane_id, band, band, p_now + delay, p_now, p_now + ttl, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs
      FROM taken WHERE late
    ), counted AS (
      UPDATE run_lanes h SET ready = h.ready + c.n
      FROM (SELECT run, lane_id, needs, count(*) AS n FROM taken WHERE NOT late GROUP BY run, lane_id, needs) c
      WHERE h.run = c.run AND h.lane = c.lane_id AND h.needs = c.needs
    )
    SELECT run, array_agg(ord::integer) AS ords, count(*) AS n, count(*) FILTER (WHERE late) AS late, bit_or(1 << band) AS bands FROM taken GROUP BY run ORDER BY run
  LOOP
    v_added := v_added || v.ords;
    PERFORM add_counters(v.run, p_seen => v.n, p_ready => v.n, p_delayed => v.late);
    UPDATE runs SET bands = bands | v.bands WHERE id = v.run AND bands & v.bands <> v.bands;
  END LOOP;
  RETURN v_added;
END
$$;

-- Admit tasks of one run without needs, each of which is new: the common case of adding. False: some are not, and nothing was done.
CREATE FUNCTION admit_new(p_now bigint, p_run integer, p_digests bytea[], p_lanes text[], p_urls text[], p_kinds text[],
                          p_priorities bigint[], p_bands smallint[], p_depths integer[], p_parents bigint[],
                          p_metas text[], p_request_options text[], p_auto_acks boolean[], p_delays bigint[], p_ttls bigint[])
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_added integer;
  v_late integer;
  v_bands integer;
BEGIN
  IF (SELECT count(DISTINCT d) FROM unnest(p_digests) d) < cardinality(p_digests)
     OR EXISTS (SELECT 1 FROM unnest(p_digests) d WHERE EXISTS (SELECT 1 FROM seen s WHERE s.run = p_run AND s.digest = d)) THEN
    RETURN false;
  END IF;
  WITH taken AS MATERIALIZED (
    SELECT n.*, l.id AS lane_id, coalesce(n.delay, 0) > 0 AS late
    FROM (SELECT u.*, (p_run::bigint << 32) | nextval('task_numbers') AS id
          FROM unnest(p_digests, p_lanes, p_urls, p_kinds, p_priorities, p_bands, p_depths, p_parents, p_metas, p_request_options, p_auto_acks, p_delays, p_ttls)
               u(digest, lane, url, kind, priority, band, depth, parent, meta, request_options, auto_ack, delay, ttl)) n
    CROSS JOIN LATERAL (SELECT id FROM lanes WHERE name = n.lane OFFSET 0) l  -- one look-up each
  ), known AS (
    INSERT INTO seen (run, digest, task) SELECT p_run, digest, id FROM taken ORDER BY digest
  ), put AS (
    INSERT INTO ready (id, run, lane, claim_band, band, due, added_at, expires_at, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs)
    SELECT id, p_run, lane_id, band, band, p_now, p_now, p_now + ttl, coalesce(priority, 0), coalesce(depth, 0), parent, digest, kind, url, meta, request_options, coalesce(auto_ack, false), 0
    FROM taken WHERE NOT late
  ), put_later AS (
    INSERT INTO delayed (id, run, lane, claim_band, band, due, added_at, expires_at, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs)
    SELECT id, p_run, lane_id, band, band, p_now + delay, p_now, p_now + ttl, coalesce(priority, 0), coalesce(depth, 0), parent, digest, kind, url, meta, request_options, coalesce(auto_ack, false), 0
    FROM taken WHERE late
  ), counted AS (
    UPDATE run_lanes h SET ready = h.ready + c.n
    FROM (SELECT lane_id, count(*) AS n FROM taken WHERE NOT late GROUP BY lane_id) c
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM run_lanes WHERE lane = c.lane_id AND run = p_run AND needs = 0 OFFSET 0) x
    WHERE h.ctid = x.tid  -- its lane is locked: it stays where it is
  )
  SELECT count(*), count(*) FILTER (WHERE late), bit_or(1 << band) INTO v_added, v_late, v_bands FROM taken;
  PERFORM add_counters(p_run, p_seen => v_added, p_ready => v_added, p_delayed => v_late);
  UPDATE runs SET bands = bands | v_bands WHERE id = p_run AND bands & v_bands <> v_bands;
  RETURN true;
EXCEPTION WHEN unique_violation THEN  -- somebody else has just added one of them
  RETURN false;
END
$$;

-- NULL when the run takes no work. p_names are the lanes of the tasks, each once, with what the run asks of them.
CREATE FUNCTION add(p_now bigint, p_run integer, p_names text[], p_spacings bigint[], p_places integer[], p_spacing bigint, p_place integer,
                    p_digests bytea[], p_lanes text[], p_urls text[], p_kinds text[],
                    p_priorities bigint[], p_bands smallint[], p_depths integer[], p_parents bigint[],
                    p_metas text[], p_request_options text[], p_auto_acks boolean[], p_needs smallint[], p_delays bigint[], p_ttls bigint[], p_revisits boolean[])
RETURNS integer[] LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_lanes integer[];
  v_asking integer[];
  v_added integer[];
  v_now bigint;
  v_idle boolean;
BEGIN
  PERFORM lock_runs(ARRAY[p_run]);
  PERFORM 1 FROM runs WHERE id = p_run AND state IN ('running', 'paused');
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  PERFORM make_lanes(p_names);
  SELECT array_agg(l.id ORDER BY u.n), array_agg(p_run) INTO v_lanes, v_asking
  FROM unnest(p_names) WITH ORDINALITY u(name, n) JOIN lanes l ON l.name = u.name;
  PERFORM lock_lanes(v_lanes);
  PERFORM set_run_paces(v_asking, v_lanes, p_spacings, p_places, p_spacing, p_place);
  v_now := clock_micros(p_now);
  v_idle := is_idle(v_now, ARRAY[p_run]);
  IF NOT 0 < ANY (p_needs) AND (SELECT seen_set = '' FROM runs WHERE id = p_run)
     AND admit_new(v_now, p_run, p_digests, p_lanes, p_urls, p_kinds, p_priorities, p_bands, p_depths, p_parents, p_metas, p_request_options, p_auto_acks, p_delays, p_ttls) THEN
    v_added := ARRAY(SELECT generate_series(1, cardinality(p_digests)));
  ELSE
    v_added := admit(v_now, array_fill(p_run, ARRAY[cardinality(p_digests)]), p_digests, p_lanes, p_urls, p_kinds,
                     p_priorities, p_bands, p_depths, p_parents, p_metas, p_request_options, p_auto_acks, p_needs, p_delays, p_ttls, p_revisits);
  END IF;
  PERFORM wake(v_lanes);
  IF v_idle AND cardinality(v_added) > 0 THEN
    PERFORM notify_workers();
  END IF;
  RETURN v_added;
END
$$;
