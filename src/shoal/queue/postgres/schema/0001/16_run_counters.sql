-- Counters of a run: what its outcomes count by name.

-- All of it as one object. The first 200 names stay; what was counted under others is summed.
CREATE FUNCTION sum_counters(p_counts json[]) RETURNS json LANGUAGE sql IMMUTABLE AS $$
  WITH each_one AS (
    SELECT e.key, e.value::bigint AS n, row_number() OVER (ORDER BY c.n, e.n) AS at
    FROM unnest(p_counts) WITH ORDINALITY c(counts, n) CROSS JOIN LATERAL json_each_text(c.counts) WITH ORDINALITY e(key, value, n)
  ), named AS (
    SELECT key, sum(n)::bigint AS n, row_number() OVER (ORDER BY key = 'other', min(at)) AS at FROM each_one GROUP BY key
  ), kept AS (
    SELECT CASE WHEN at <= 200 THEN key ELSE 'other' END AS key, sum(n)::bigint AS n, min(at) AS at FROM named GROUP BY 1
  )
  SELECT coalesce(json_object_agg(key, n ORDER BY at), '{}') FROM kept
$$;

-- p_totals: [run, {name: number}] each.
CREATE FUNCTION count_up(p_totals json) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v record;
BEGIN
  FOR v IN
    INSERT INTO run_counters (run, counts) SELECT (value ->> 0)::integer, value -> 1 FROM json_array_elements(p_totals) ORDER BY (value ->> 0)::integer RETURNING run, id
  LOOP
    IF v.id % 32 = 0 THEN
      PERFORM fold_counters(v.run);
    END IF;
  END LOOP;
END
$$;

-- Those of a run that nobody else is at become one, in the place of the first.
CREATE FUNCTION fold_counters(p_run integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_ids bigint[];
  v_counts json[];
BEGIN
  SELECT array_agg(id ORDER BY id), array_agg(counts ORDER BY id) INTO v_ids, v_counts
  FROM (SELECT id, counts FROM run_counters WHERE run = p_run ORDER BY id FOR UPDATE SKIP LOCKED) x;
  IF cardinality(v_ids) > 1 THEN
    DELETE FROM run_counters WHERE run = p_run AND id = ANY (v_ids[2:]);
    UPDATE run_counters SET counts = sum_counters(v_counts) WHERE run = p_run AND id = v_ids[1];
  END IF;
END
$$;

CREATE FUNCTION read_counters(p_run integer) RETURNS json LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT sum_counters(ARRAY(SELECT counts FROM run_counters WHERE run = p_run ORDER BY id)) FROM runs WHERE id = p_run
$$;
