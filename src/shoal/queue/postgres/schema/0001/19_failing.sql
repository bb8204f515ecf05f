-- Failing: how often URLs failed for good, over runs; by the digest of the URL. number: of the last of these failures.
CREATE TABLE failing (key uuid PRIMARY KEY, number bigint NOT NULL, count integer NOT NULL, last_at bigint NOT NULL, causes jsonb NOT NULL);
CREATE INDEX failing_oldest ON failing (number);
CREATE SEQUENCE failure_numbers;

-- Under which key failures of a task count; NULL: under none. Those of a form say nothing of the next, and typed tasks have no page.
CREATE FUNCTION failure_key(p_url text, p_request_options text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
  -- As text: what somebody else wrote there need not be JSON, and no string can hold a quoted name followed by a colon.
  SELECT CASE WHEN starts_with(p_url, 'task:') OR coalesce(p_request_options ~ '"body":(?!null)|"method":(?!"GET")', false) THEN NULL ELSE md5(p_url)::uuid END
$$;

-- One more failure for every dead letter that is not only moved here from another queue. 8 causes of 100 letters are told apart.
CREATE FUNCTION count_failures() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v record;
BEGIN
  IF current_setting('shoal.importing', true) = 'on' THEN
    RETURN NULL;
  END IF;
  FOR v IN SELECT failure_key(url, request_options) AS key, left(cause, 100) AS cause, ended_at FROM new_failures ORDER BY 1, id LOOP
    IF v.key IS NOT NULL THEN
      INSERT INTO failing AS f (key, number, count, last_at, causes) VALUES (v.key, nextval('failure_numbers'), 1, v.ended_at, jsonb_build_object(v.cause, 1))
      ON CONFLICT (key) DO UPDATE SET number = excluded.number, count = f.count + 1, last_at = excluded.last_at, causes = f.causes || (
        SELECT jsonb_build_object(x.name, coalesce((f.causes ->> x.name)::integer, 0) + 1)
        FROM (SELECT CASE WHEN f.causes ? v.cause OR (SELECT count(*) FROM jsonb_object_keys(f.causes)) < 8 THEN v.cause ELSE 'other' END AS name) x);
    END IF;
  END LOOP;
  RETURN NULL;
END
$$;
CREATE TRIGGER failed AFTER INSERT ON dead REFERENCING NEW TABLE AS new_failures FOR EACH STATEMENT EXECUTE FUNCTION count_failures();

-- A slice of the oldest that are remembered no more.
CREATE FUNCTION forget_old_failures(p_now bigint, p_kept bigint, p_most bigint, p_slice integer) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := clock_micros(p_now);
BEGIN
  DELETE FROM failing WHERE key IN (
    SELECT f.key FROM (SELECT key, number, last_at FROM failing ORDER BY number LIMIT p_slice FOR UPDATE SKIP LOCKED) f
    WHERE f.last_at <= v_now - p_kept OR f.number <= (SELECT last_value FROM failure_numbers) - p_most);
END
$$;
