-- Partitions: the history of runs that were started within some days of each other, one partition of each table.
-- A partition holds up to 1,024 numbers of runs. It is a day's worth, or more where history is kept for long, so that
-- there are never too many of them.

CREATE FUNCTION create_partitions(p_first integer, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v text;
  v_from bigint;
  v_to bigint;
BEGIN
  FOREACH v IN ARRAY ARRAY['seen', 'ended', 'batches'] LOOP
    v_from := CASE v WHEN 'ended' THEN p_first::bigint << 32 ELSE p_first END;
    v_to := CASE v WHEN 'ended' THEN (p_first + 1024)::bigint << 32 ELSE p_first + 1024 END;
    -- Made apart and attached: that waits for nobody.
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL) WITH (autovacuum_vacuum_cost_delay = 0)', v || '_' || p_first, v);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', v, v || '_' || p_first, v_from, v_to);
  END LOOP;
  INSERT INTO partitions (first, made_at) VALUES (p_first, p_now);
END
$$;

-- The number of a new run, and a partition for its history. The caller has all starts alone.
CREATE FUNCTION next_run(p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_run integer := nextval('run_numbers');
  v_newest record;
  v_oldest bigint;
BEGIN
  SELECT * INTO v_newest FROM partitions ORDER BY first DESC LIMIT 1;
  SELECT min(made_at) INTO v_oldest FROM partitions;
  IF p_now - v_newest.made_at > greatest(86400000000, (p_now - v_oldest) / 16) AND v_run < v_newest.first + 1024 THEN
    PERFORM 1 FROM runs WHERE id >= v_newest.first LIMIT 1;
    IF FOUND THEN
      v_run := setval('run_numbers', v_newest.first + 1024);
    ELSE
      UPDATE partitions SET made_at = p_now WHERE first = v_newest.first;
    END IF;
  END IF;
  IF v_run >= v_newest.first + 1024 THEN
    PERFORM create_partitions(v_run / 1024 * 1024, p_now);
  END IF;
  RETURN v_run;
END
$$;

-- Remove one partition that holds no runs any more: where it began, or NULL when there is none. The newest is emptied only.
CREATE FUNCTION drop_partitions() RETURNS integer LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '500ms' AS $$
DECLARE
  v_first integer;
  v_is_newest boolean;
  v text;
  v_used boolean;
BEGIN
  PERFORM pg_advisory_xact_lock(lock_namespace(), -1);
  FOR v_first, v_is_newest IN
    SELECT s.first, s.first = (SELECT max(first) FROM partitions) FROM partitions s
    WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id >= s.first AND id < s.first + 1024) ORDER BY s.first
  LOOP
    IF v_is_newest THEN
      EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I) OR EXISTS (SELECT 1 FROM %I)', 'seen_' || v_first, 'ended_' || v_first) INTO v_used;
      CONTINUE WHEN NOT v_used;
    END IF;
    FOREACH v IN ARRAY ARRAY['seen', 'ended', 'batches'] LOOP
      EXECUTE format(CASE WHEN v_is_newest THEN 'TRUNCATE %I' ELSE 'DROP TABLE %I' END, v || '_' || v_first);
    END LOOP;
    IF NOT v_is_newest THEN
      DELETE FROM partitions WHERE first = v_first;
    END IF;
    RETURN v_first;
  END LOOP;
  RETURN NULL;
END
$$;

-- A slice of the history of a run that is gone while others of its partition are not: how many rows went.
CREATE FUNCTION clear_run(p_run integer, p_slice integer) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_gone integer;
  v_total integer;
BEGIN
  DELETE FROM ended WHERE id = ANY (ARRAY(SELECT id FROM ended WHERE id >= p_run::bigint << 32 AND id < (p_run + 1)::bigint << 32 LIMIT p_slice));
  GET DIAGNOSTICS v_total = ROW_COUNT;
  DELETE FROM batches WHERE run = p_run AND id = ANY (ARRAY(SELECT id FROM batches WHERE run = p_run LIMIT p_slice));
  GET DIAGNOSTICS v_gone = ROW_COUNT;
  v_total := v_total + v_gone;
  DELETE FROM seen WHERE run = p_run AND digest = ANY (ARRAY(SELECT digest FROM seen WHERE run = p_run LIMIT p_slice));
  GET DIAGNOSTICS v_gone = ROW_COUNT;
  RETURN v_total + v_gone;
END
$$;

SELECT create_partitions(0, 0);
