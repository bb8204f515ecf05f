-- Records, which are numbered within their run when they are first read.
-- The last record of a batch is first + size - 1, also when earlier ones were trimmed.

CREATE FUNCTION number_batches(p_run integer) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM 1 FROM batches WHERE run = p_run AND first IS NULL LIMIT 1;
  IF FOUND THEN
    PERFORM pg_advisory_xact_lock(lock_namespace(), -2);
    UPDATE batches b SET first = x.first
    FROM (
      SELECT id, (SELECT coalesce(max(first + size), 1) FROM batches WHERE run = p_run AND first = (SELECT max(first) FROM batches WHERE run = p_run AND first IS NOT NULL))
                 + sum(size) OVER (ORDER BY id) - size AS first
      FROM batches WHERE run = p_run AND first IS NULL
    ) x WHERE b.run = p_run AND b.id = x.id;
  END IF;
END
$$;

-- After a number, in the order of settling; sizes are looked at first, so that no more is read than is wanted.
CREATE FUNCTION read_records(p_run integer, p_after bigint, p_limit integer)
RETURNS TABLE (o_seq bigint, o_task bigint, o_data text) LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_batches bigint[];
BEGIN
  PERFORM 1 FROM runs WHERE id = p_run;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  PERFORM number_batches(p_run);
  v_batches := ARRAY(
    SELECT id FROM (
      SELECT id, first, size, sum(least(size, first + size - 1 - p_after)) OVER (ORDER BY first) - least(size, first + size - 1 - p_after) AS before
      FROM (
        SELECT id, first, size FROM batches
        WHERE run = p_run AND first >= coalesce((SELECT max(first) FROM batches WHERE run = p_run AND first <= p_after), 0)
        ORDER BY first LIMIT p_limit + 2) y
      WHERE first + size - 1 > p_after) x
    WHERE before < p_limit);
  RETURN QUERY
    SELECT b.first + b.size - cardinality(b.tasks) + r.n - 1, r.task, r.data
    FROM batches b CROSS JOIN LATERAL unnest(b.tasks, b.data) WITH ORDINALITY r(task, data, n)
    WHERE b.run = p_run AND b.id = ANY (v_batches) AND b.first + b.size - cardinality(b.tasks) + r.n - 1 > p_after
    ORDER BY 1 LIMIT p_limit;
END
$$;

CREATE FUNCTION read_records_of(p_run integer, p_tasks bigint[], p_after bigint, p_limit integer)
RETURNS TABLE (o_seq bigint, o_task bigint, o_data text) LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  PERFORM 1 FROM runs WHERE id = p_run;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  PERFORM number_batches(p_run);
  RETURN QUERY
    WITH e AS MATERIALIZED (
      SELECT batch, first_record, records FROM ended WHERE id = ANY (p_tasks) AND records > 0
    ), wanted AS (
      SELECT batch AS id FROM e WHERE batch IS NOT NULL
      UNION SELECT b.id FROM e JOIN batches b ON b.run = p_run AND b.first < e.first_record + e.records AND b.first + b.size > e.first_record
    )
    SELECT b.first + b.size - cardinality(b.tasks) + r.n - 1, r.task, r.data
    FROM wanted w JOIN batches b ON b.run = p_run AND b.id = w.id CROSS JOIN LATERAL unnest(b.tasks, b.data) WITH ORDINALITY r(task, data, n)
    WHERE r.task = ANY (p_tasks) AND b.first + b.size - cardinality(b.tasks) + r.n - 1 > p_after
    ORDER BY 1 LIMIT p_limit;
END
$$;

-- Remove what is safe elsewhere. The newest batch stays, if empty: the next one is numbered after it.
CREATE FUNCTION trim_records(p_run integer, p_upto bigint) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_gone bigint;
  v_part bigint;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(lock_namespace(), p_run);
  PERFORM 1 FROM runs WHERE id = p_run;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  PERFORM number_batches(p_run);
  PERFORM pg_advisory_xact_lock(lock_namespace(), -2);
  WITH gone AS (
    DELETE FROM batches WHERE run = p_run AND first <= p_upto AND first + size - 1 <= p_upto AND first < (SELECT max(first) FROM batches WHERE run = p_run)
    RETURNING cardinality(tasks) AS n
  ) SELECT coalesce(sum(n), 0) INTO v_gone FROM gone;
  WITH part AS (
    SELECT id, least(cardinality(tasks), p_upto - (first + size - cardinality(tasks)) + 1)::integer AS n FROM batches WHERE run = p_run AND first <= p_upto
  ), cut AS (
    UPDATE batches b SET tasks = b.tasks[p.n + 1:], data = b.data[p.n + 1:] FROM part p WHERE p.n > 0 AND b.run = p_run AND b.id = p.id RETURNING p.n
  ) SELECT coalesce(sum(n), 0) INTO v_part FROM cut;
  IF v_gone + v_part > 0 THEN
    PERFORM add_counters(p_run, p_trimmed => v_gone + v_part);
  END IF;
  RETURN v_gone + v_part;
END
$$;
