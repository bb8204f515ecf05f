-- Admit: many tasks into the queue at once, each at most once per run.

-- The lanes are locked and the heads are there. Answers which of the tasks (counted from 1) were new.
CREATE FUNCTION admit(p_now bigint, p_runs integer[], p_digests bytea[], p_lanes text[], p_urls text[], p_kinds text[],
                      p_priorities bigint[], p_bands smallint[], p_depths integer[], p_parents bigint[],
                      p_metas text[], p_asks text[], p_delays bigint[], p_ttls bigint[])
RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
  v record;
  v_added integer[] := '{}';
BEGIN
  FOR v IN
    WITH fresh AS (
      SELECT DISTINCT ON (u.run, u.digest) u.*
      FROM unnest(p_runs, p_digests, p_lanes, p_urls, p_kinds, p_priorities, p_bands, p_depths, p_parents, p_metas, p_asks, p_delays, p_ttls)
           WITH ORDINALITY u(run, digest, lane, url, kind, priority, band, depth, parent, meta, ask, delay, ttl, ord)
      WHERE NOT EXISTS (SELECT 1 FROM seen s WHERE s.run = u.run AND s.digest = u.digest)
      ORDER BY u.run, u.digest, u.ord
    ), numbered AS MATERIALIZED (
      -- Numbers grow in the order of adding, though the seen-set is written in the order of its key.
      SELECT f.*, (f.run::bigint << 32) | nextval('task_numbers') AS id FROM (SELECT * FROM fresh ORDER BY ord) f
    ), known AS (
      INSERT INTO seen (run, digest, task) SELECT run, digest, id FROM numbered ORDER BY run, digest
      ON CONFLICT DO NOTHING RETURNING task
    ), taken AS MATERIALIZED (
      SELECT n.*, l.id AS lane_id, n.delay > 0 AS late FROM known k JOIN numbered n ON n.id = k.task JOIN lanes l ON l.name = n.lane
    ), put AS (
      INSERT INTO ready (id, run, lane, turn, band, due, added_at, expires_at, priority, depth, parent, digest, kind, url, meta, ask)
      SELECT id, run, lane_id, band, band, p_now, p_now, p_now + ttl, priority, depth, parent, digest, kind, url, meta, ask
      FROM taken WHERE NOT late
    ), put_later AS (
      INSERT INTO delayed (id, run, lane, turn, band, due, added_at, expires_at, priority, depth, parent, digest, kind, url, meta, ask)
      SELECT id, run, lane_id, band, band, p_now + delay, p_now, p_now + ttl, priority, depth, parent, digest, kind, url, meta, ask
      FROM taken WHERE late
    ), counted AS (
      UPDATE heads h SET ready = h.ready + c.n
      FROM (SELECT run, lane_id, count(*) AS n FROM taken WHERE NOT late GROUP BY run, lane_id) c
      WHERE h.run = c.run AND h.lane = c.lane_id
    )
    SELECT run, array_agg(ord::integer) AS ords, count(*) AS n, count(*) FILTER (WHERE late) AS late FROM taken GROUP BY run ORDER BY run
  LOOP
    v_added := v_added || v.ords;
    PERFORM tally(v.run, p_seen => v.n, p_ready => v.n, p_delayed => v.late);
  END LOOP;
  RETURN v_added;
END
$$;

-- NULL when the run takes no work. p_names are the lanes of the tasks, each once, with what the run asks of them.
CREATE FUNCTION add(p_now bigint, p_run integer, p_names text[], p_spacings bigint[], p_places integer[], p_spacing bigint, p_place integer,
                    p_digests bytea[], p_lanes text[], p_urls text[], p_kinds text[],
                    p_priorities bigint[], p_bands smallint[], p_depths integer[], p_parents bigint[],
                    p_metas text[], p_asks text[], p_delays bigint[], p_ttls bigint[])
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
  PERFORM ask(v_asking, v_lanes, p_spacings, p_places, p_spacing, p_place);
  v_now := tick(p_now);
  v_idle := is_idle(v_now, ARRAY[p_run]);
  v_added := admit(v_now, array_fill(p_run, ARRAY[cardinality(p_digests)]), p_digests, p_lanes, p_urls, p_kinds,
                   p_priorities, p_bands, p_depths, p_parents, p_metas, p_asks, p_delays, p_ttls);
  PERFORM wake(v_lanes);
  IF v_idle AND cardinality(v_added) > 0 THEN
    PERFORM ring();
  END IF;
  RETURN v_added;
END
$$;
