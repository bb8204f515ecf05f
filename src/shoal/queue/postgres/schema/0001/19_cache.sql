-- The response cache. Entries go in the order of seq, which is also that of their age. It is not logged: it can be
-- done without, and after a crash of the server it is empty.
CREATE UNLOGGED TABLE cache_entries (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key bytea NOT NULL UNIQUE, host text COLLATE "C" NOT NULL, url text NOT NULL,
  stored_at bigint NOT NULL, fresh_for double precision NOT NULL, size bigint NOT NULL, data bytea NOT NULL
);
ALTER TABLE cache_entries ALTER data SET STORAGE EXTERNAL;   -- it is compressed already
CREATE INDEX cache_entries_by_host ON cache_entries (host, seq);
-- One row, which every change locks first: whoever counts is alone, and the counts are exact.
CREATE UNLOGGED TABLE cache_totals (entries bigint NOT NULL, bytes bigint NOT NULL) WITH (fillfactor = 10);

-- The counts as they are, locked; after a crash of the server there is no row.
CREATE FUNCTION cache_lock() RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE have bigint;
BEGIN
  SELECT bytes INTO have FROM cache_totals FOR UPDATE;
  IF NOT FOUND THEN
    LOCK TABLE cache_totals IN EXCLUSIVE MODE;
    INSERT INTO cache_totals SELECT 0, 0 WHERE NOT EXISTS (SELECT FROM cache_totals);
    SELECT bytes INTO have FROM cache_totals FOR UPDATE;
  END IF;
  RETURN have;
END $$;

CREATE FUNCTION cache_push_out(p_excess bigint, p_oldest bigint, p_most integer) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE upto bigint := 0; excess bigint := p_excess; it record;
BEGIN
  FOR it IN SELECT seq, size, stored_at FROM cache_entries ORDER BY seq LIMIT p_most LOOP
    EXIT WHEN excess <= 0 AND it.stored_at > p_oldest;
    upto := it.seq;
    excess := excess - it.size;
  END LOOP;
  IF upto > 0 THEN
    WITH gone AS (DELETE FROM cache_entries WHERE seq <= upto RETURNING size)
    UPDATE cache_totals SET entries = entries - (SELECT count(*) FROM gone), bytes = bytes - (SELECT coalesce(sum(size), 0) FROM gone);
  END IF;
END $$;

CREATE FUNCTION cache_put(
  p_now bigint, p_key bytea, p_host text, p_url text, p_fresh_for double precision, p_size bigint, p_data bytea, p_max bigint, p_kept bigint, p_most integer
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE now_ bigint := clock_micros(p_now); have bigint := cache_lock(); old bigint;
BEGIN
  DELETE FROM cache_entries WHERE key = p_key RETURNING size INTO old;
  IF old IS NOT NULL THEN
    UPDATE cache_totals SET entries = entries - 1, bytes = bytes - old;
    have := have - old;
  END IF;
  IF p_data IS NOT NULL THEN
    INSERT INTO cache_entries (key, host, url, stored_at, fresh_for, size, data) VALUES (p_key, p_host, p_url, now_, p_fresh_for, p_size, p_data);
    UPDATE cache_totals SET entries = entries + 1, bytes = bytes + p_size;
    PERFORM cache_push_out(have + p_size - p_max, now_ - p_kept, p_most);
  END IF;
END $$;

CREATE FUNCTION cache_clear(p_host text, p_keys bytea[], p_limit integer) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE gone_ bigint; bytes_ bigint;
BEGIN
  PERFORM cache_lock();
  IF p_keys IS NOT NULL THEN
    WITH gone AS (DELETE FROM cache_entries WHERE key = ANY (p_keys[1:p_limit]) AND p_host IN ('', host) RETURNING size)
    SELECT count(*), coalesce(sum(size), 0) INTO gone_, bytes_ FROM gone;
  ELSIF p_host <> '' THEN
    WITH gone AS (DELETE FROM cache_entries WHERE seq IN (SELECT seq FROM cache_entries WHERE host = p_host ORDER BY seq LIMIT p_limit) RETURNING size)
    SELECT count(*), coalesce(sum(size), 0) INTO gone_, bytes_ FROM gone;
  ELSE
    WITH gone AS (DELETE FROM cache_entries WHERE seq IN (SELECT seq FROM cache_entries ORDER BY seq LIMIT p_limit) RETURNING size)
    SELECT count(*), coalesce(sum(size), 0) INTO gone_, bytes_ FROM gone;
  END IF;
  UPDATE cache_totals SET entries = entries - gone_, bytes = bytes - bytes_;
  RETURN gone_;
END $$;

CREATE FUNCTION cache_sweep(p_now bigint, p_kept bigint, p_most integer) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE oldest bigint := clock_micros(p_now) - p_kept;
BEGIN
  IF (SELECT stored_at FROM cache_entries ORDER BY seq LIMIT 1) <= oldest THEN
    PERFORM cache_lock();
    PERFORM cache_push_out(0, oldest, p_most);
  END IF;
END $$;
