-- Papers: documents that workers share.

CREATE FUNCTION lock_paper(p_kind text, p_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(place(), -10 - (hashtext(p_kind || '/' || p_name) & 1073741823));
END
$$;

CREATE FUNCTION keep_paper(p_now bigint, p_kind text, p_name text, p_text text) RETURNS SETOF papers LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v papers;
BEGIN
  PERFORM lock_paper(p_kind, p_name);
  SELECT * INTO v FROM papers WHERE kind = p_kind AND name = p_name ORDER BY version DESC LIMIT 1;
  IF FOUND AND v.text = p_text THEN
    RETURN NEXT v;
    RETURN;
  END IF;
  RETURN QUERY INSERT INTO papers (kind, name, version, made_at, text) VALUES (p_kind, p_name, coalesce(v.version, 0) + 1, tick(p_now), p_text) RETURNING *;
END
$$;

-- Replace the newest version if it is still p_expected (0: there is none). A NULL text removes the document.
CREATE FUNCTION swap_paper(p_now bigint, p_kind text, p_name text, p_text text, p_expected bigint) RETURNS SETOF papers LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v papers;
BEGIN
  PERFORM lock_paper(p_kind, p_name);
  SELECT * INTO v FROM papers WHERE kind = p_kind AND name = p_name ORDER BY version DESC LIMIT 1;
  IF coalesce(v.version, 0) <> p_expected THEN
    RETURN;
  END IF;
  DELETE FROM papers WHERE kind = p_kind AND name = p_name;
  IF p_text IS NOT NULL THEN
    RETURN QUERY INSERT INTO papers (kind, name, version, made_at, text) VALUES (p_kind, p_name, CASE p_expected WHEN 0 THEN tick(p_now) ELSE p_expected + 1 END, tick(p_now), p_text) RETURNING *;
  ELSIF v.version IS NOT NULL THEN
    RETURN NEXT v;
  END IF;
END
$$;
