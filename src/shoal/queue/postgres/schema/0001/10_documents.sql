-- Documents that workers share.

CREATE FUNCTION lock_document(p_kind text, p_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(lock_namespace(), -10 - (hashtext(p_kind || '/' || p_name) & 1073741823));
END
$$;

CREATE FUNCTION save_document(p_now bigint, p_kind text, p_name text, p_text text) RETURNS SETOF documents LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v documents;
BEGIN
  PERFORM lock_document(p_kind, p_name);
  SELECT * INTO v FROM documents WHERE kind = p_kind AND name = p_name ORDER BY version DESC LIMIT 1;
  IF FOUND AND v.text = p_text THEN
    RETURN NEXT v;
    RETURN;
  END IF;
  RETURN QUERY INSERT INTO documents (kind, name, version, made_at, text) VALUES (p_kind, p_name, coalesce(v.version, 0) + 1, clock_micros(p_now), p_text) RETURNING *;
END
$$;

-- Replace the newest version if it is still p_expected (0: there is none). A NULL text removes the document.
CREATE FUNCTION compare_and_swap_document(p_now bigint, p_kind text, p_name text, p_text text, p_expected bigint) RETURNS SETOF documents LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v documents;
BEGIN
  PERFORM lock_document(p_kind, p_name);
  SELECT * INTO v FROM documents WHERE kind = p_kind AND name = p_name ORDER BY version DESC LIMIT 1;
  IF coalesce(v.version, 0) <> p_expected THEN
    RETURN;
  END IF;
  DELETE FROM documents WHERE kind = p_kind AND name = p_name;
  IF p_text IS NOT NULL THEN
    RETURN QUERY INSERT INTO documents (kind, name, version, made_at, text) VALUES (p_kind, p_name, CASE p_expected WHEN 0 THEN clock_micros(p_now) ELSE p_expected + 1 END, clock_micros(p_now), p_text) RETURNING *;
  ELSIF v.version IS NOT NULL THEN
    RETURN NEXT v;
  END IF;
END
$$;
