-- Seen-sets: what runs of one name have had between them, kept when the runs are gone.

-- Remove a slice of what is remembered no more.
CREATE FUNCTION sweep_seen(p_now bigint, p_slice integer) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
  v_now bigint := clock_micros(p_now);
  v seen_sets;
  v_last bytea;
  v_gone bigint;
BEGIN
  SELECT * INTO v FROM seen_sets WHERE name IS NOT NULL AND seen_for > 0 AND swept_at <= v_now - 3600000000
  ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  SELECT digest INTO v_last FROM seen_entries WHERE seen_set = v.id AND digest > coalesce(v.cursor, '') ORDER BY digest OFFSET p_slice - 1 LIMIT 1;
  DELETE FROM seen_entries WHERE seen_set = v.id AND digest > coalesce(v.cursor, '') AND (v_last IS NULL OR digest <= v_last)
    AND hour < greatest(0, v_now - v.created_at - v.seen_for) / 3600000000;
  GET DIAGNOSTICS v_gone = ROW_COUNT;
  PERFORM leave_seen_set(v.id, v_gone);
  UPDATE seen_sets SET cursor = v_last, swept_at = CASE WHEN v_last IS NULL THEN v_now ELSE swept_at END WHERE id = v.id;
END
$$;

-- So many have left a set.
CREATE FUNCTION leave_seen_set(p_set integer, p_gone bigint) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO seen_set_counters AS c (seen_set, shard, entries, changed_at) SELECT p_set, pg_backend_pid() % 32, -p_gone, 0 WHERE p_gone > 0
  ON CONFLICT (seen_set, shard) DO UPDATE SET entries = c.entries + excluded.entries;
END
$$;

CREATE FUNCTION forget_seen(p_name text, p_digests bytea[]) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
  v_set integer;
  v_gone bigint;
BEGIN
  SELECT id INTO v_set FROM seen_sets WHERE name = p_name;
  DELETE FROM seen_entries WHERE seen_set = v_set AND digest = ANY (p_digests);
  GET DIAGNOSTICS v_gone = ROW_COUNT;
  PERFORM leave_seen_set(v_set, v_gone);
  RETURN v_gone;
END
$$;

-- A slice of a set that was cleared, or of any such set (NULL): whether there is more of it.
CREATE FUNCTION clear_seen_slice(p_set integer, p_slice integer) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
  v_set integer;
  v_gone bigint;
BEGIN
  SELECT id INTO v_set FROM seen_sets WHERE name IS NULL AND id = coalesce(p_set, id) ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  DELETE FROM seen_entries WHERE seen_set = v_set AND digest = ANY (ARRAY(SELECT digest FROM seen_entries WHERE seen_set = v_set LIMIT p_slice));
  GET DIAGNOSTICS v_gone = ROW_COUNT;
  IF v_gone = p_slice THEN
    RETURN true;
  END IF;
  DELETE FROM seen_set_counters WHERE seen_set = v_set;
  DELETE FROM seen_sets WHERE id = v_set;
  RETURN false;
END
$$;
