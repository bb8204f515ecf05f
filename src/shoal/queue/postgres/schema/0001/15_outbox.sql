-- Outbox: what settled tasks want done elsewhere.

-- Entries of a run, as JSON: [kind, key, data in base64] each. Whoever changes an outbox has its run's row, so that it is known
-- whether it is full.
CREATE FUNCTION add_entries(p_run integer, p_entries json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM runs WHERE id = p_run FOR NO KEY UPDATE;
  INSERT INTO outbox (run, kind, key, data)
  SELECT p_run, e.value ->> 0, e.value ->> 1, decode(e.value ->> 2, 'base64') FROM json_array_elements(p_entries) WITH ORDINALITY e(value, n) ORDER BY e.n;
  PERFORM add_counters(p_run, p_outbox => json_array_length(p_entries));
  PERFORM note_outbox(p_run);
END
$$;

-- Answers whether more of the run can be handed out from now on. The caller has its row.
CREATE FUNCTION note_outbox(p_run integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_full boolean := (SELECT sum(outbox) >= 10000 FROM counters WHERE run = p_run);
BEGIN
  UPDATE runs SET outbox_full = v_full WHERE id = p_run AND outbox_full <> v_full;
  RETURN FOUND AND NOT v_full;
END
$$;

CREATE FUNCTION acknowledge(p_seqs bigint[]) RETURNS integer LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_gone integer := 0;
  v_more boolean := false;
  v record;
BEGIN
  PERFORM 1 FROM runs WHERE id IN (SELECT run FROM outbox WHERE seq = ANY (p_seqs)) ORDER BY id FOR NO KEY UPDATE;
  FOR v IN
    WITH gone AS (DELETE FROM outbox WHERE seq = ANY (p_seqs) RETURNING run) SELECT run, count(*)::integer AS n FROM gone GROUP BY run ORDER BY run
  LOOP
    PERFORM add_counters(v.run, p_outbox => -v.n);
    v_more := note_outbox(v.run) OR v_more;
    v_gone := v_gone + v.n;
  END LOOP;
  IF v_more THEN
    PERFORM notify_workers();
  END IF;
  RETURN v_gone;
END
$$;
