-- Lanes, locks and counting. Every verb locks in one order: runs by id (advisory), lanes by id, leases, counters.

-- The store's clock, unless a test brings its own.
CREATE FUNCTION tick(p_now bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

-- The first half of our advisory locks: this namespace.
DO $do$ BEGIN
  EXECUTE format('CREATE FUNCTION place() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT %s $$', 'runs'::regclass::oid::bigint & 2147483647);
END $do$;

-- Work on a run shares it; what changes the run as a whole has it alone. A run with a page limit counts
-- every task it hands out, so all its verbs have it alone.
CREATE FUNCTION lock_runs(p_runs integer[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM CASE WHEN max_pages > 0 THEN pg_advisory_xact_lock(place(), id) ELSE pg_advisory_xact_lock_shared(place(), id) END
  FROM (SELECT id, max_pages FROM runs WHERE id = ANY (p_runs) ORDER BY id) r;
END
$$;

CREATE FUNCTION lock_lanes(p_lanes integer[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM lanes WHERE id = ANY (p_lanes) ORDER BY id FOR NO KEY UPDATE;
END
$$;

-- Call it before locking any lane: it may wait for another who makes the same ones.
CREATE FUNCTION make_lanes(p_names text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lanes (name)
    SELECT DISTINCT n FROM unnest(p_names) n WHERE NOT EXISTS (SELECT 1 FROM lanes WHERE name = n) ORDER BY n
    ON CONFLICT DO NOTHING;
END
$$;

CREATE FUNCTION wake_time(p_ready integer, p_max integer, p_flight integer, p_parked integer, p_next bigint, p_held bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_ready <= 0 OR (p_max > 0 AND p_flight >= p_max) OR (p_parked > 0 AND p_flight > 0) THEN NULL
         ELSE greatest(p_next, p_held) END
$$;

-- Say anew when each head of these lanes may be asked; call it last, once all else has changed.
CREATE FUNCTION wake(p_lanes integer[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE heads h SET wake_at = wake_time(h.ready, l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until)
  FROM lanes l
  WHERE l.id = ANY (p_lanes) AND h.lane = l.id
    AND h.wake_at IS DISTINCT FROM wake_time(h.ready, l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until);
END
$$;

-- Apply the slowest pace that any unfinished run asks of each lane.
CREATE FUNCTION settle_pace(p_lanes integer[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE lanes l SET asked = x.asked, places = x.places,
                     max_in_flight = CASE WHEN l.cap < 0 THEN x.places ELSE l.cap END,
                     spacing = CASE WHEN l.rule < 0 THEN greatest(l.learned, x.asked) ELSE l.rule END
  FROM (
    SELECT u.id, coalesce(max(h.spacing), 0) AS asked, coalesce(min(nullif(h.max_in_flight, 0)), 0) AS places
    FROM unnest(p_lanes) u(id)
    LEFT JOIN (heads h JOIN runs r ON r.id = h.run AND r.state IN ('running', 'paused')) ON h.lane = u.id
    GROUP BY u.id
  ) x
  WHERE l.id = x.id;
END
$$;

-- Whether workers of these runs may be asleep: nothing of theirs is due or will be soon.
CREATE FUNCTION is_idle(p_now bigint, p_runs integer[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN NOT EXISTS (SELECT 1 FROM heads WHERE run = ANY (p_runs) AND wake_at <= p_now + 2000000);
END
$$;

-- Wake them; only a hint, and only where they may be asleep: notifications make commits wait for each other.
CREATE FUNCTION ring() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('shoal_' || place(), '');
END
$$;

-- For leases and slots, whose holders die with what a power loss undoes: the commit does not wait for the disk.
CREATE FUNCTION hint() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
END
$$;

-- What runs ask of lanes that are locked. A NULL spacing is no news; a new head then gets the default.
CREATE FUNCTION ask(p_runs integer[], p_lanes integer[], p_spacings bigint[], p_places integer[], p_spacing bigint, p_place integer)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_changed integer[];
BEGIN
  WITH pairs AS MATERIALIZED (
    SELECT u.run, u.lane, coalesce(u.spacing, p_spacing) AS spacing, coalesce(u.places, p_place) AS places,
           u.spacing IS NOT NULL AS news, h.run IS NULL AS missing, h.spacing AS old_spacing, h.max_in_flight AS old_places
    FROM unnest(p_runs, p_lanes, p_spacings, p_places) u(run, lane, spacing, places)
    LEFT JOIN heads h ON h.lane = u.lane AND h.run = u.run
  ), added AS (
    -- A newcomer to a lane starts level with the run that was served least, so that it catches up with nobody.
    INSERT INTO heads (run, lane, spacing, max_in_flight, picks)
    SELECT p.run, p.lane, p.spacing, p.places, coalesce((
      SELECT min(h.picks) FROM heads h JOIN runs r ON r.id = h.run AND r.state = 'running' WHERE h.lane = p.lane), 0)
    FROM pairs p WHERE p.missing
    RETURNING lane
  ), changed AS (
    UPDATE heads h SET spacing = p.spacing, max_in_flight = p.places
    FROM pairs p
    WHERE p.news AND NOT p.missing AND (p.old_spacing, p.old_places) <> (p.spacing, p.places)
      AND h.run = p.run AND h.lane = p.lane
    RETURNING h.lane
  )
  SELECT array_agg(DISTINCT lane) INTO v_changed FROM (SELECT lane FROM added UNION SELECT lane FROM changed) x;
  IF v_changed IS NOT NULL THEN
    PERFORM settle_pace(v_changed);
  END IF;
END
$$;

-- What answers taught about hosts, and what people set; the lanes are there and locked. Each change is
-- [lane, hold_for, spacing, park_for, reason, rule, limit] with durations in µs or null.
CREATE FUNCTION change_lanes(p_now bigint, p_changes json) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v json;
  v_lane text; v_hold bigint; v_spacing bigint; v_park bigint; v_reason text; v_rule bigint; v_limit integer;
BEGIN
  FOR v IN SELECT value FROM json_array_elements(p_changes) LOOP
    v_lane := v ->> 0; v_hold := v ->> 1; v_spacing := v ->> 2; v_park := v ->> 3; v_reason := v ->> 4; v_rule := v ->> 5; v_limit := v ->> 6;
    IF v_hold IS NOT NULL THEN
      UPDATE lanes SET held_until = greatest(held_until, p_now + v_hold), reason = v_reason WHERE name = v_lane;
    END IF;
    IF v_park > 0 THEN
      -- Two workers that park it for the same failures have parked it once.
      UPDATE lanes SET held_until = greatest(held_until, p_now + v_park),
                       parked = parked + (parked = 0 OR held_until <= p_now)::integer, reason = v_reason
      WHERE name = v_lane;
    ELSIF v_park IS NOT NULL THEN
      UPDATE lanes SET held_until = 0, parked = 0, reason = '' WHERE name = v_lane;
    END IF;
    IF v_spacing IS NOT NULL OR v_rule IS NOT NULL THEN
      -- A slot that was reckoned with a shorter spacing moves on.
      UPDATE lanes l SET learned = x.learned, rule = x.rule, spacing = x.spacing, next_at = l.next_at + greatest(0, x.spacing - l.spacing),
                         reason = CASE WHEN v_spacing IS NULL OR v_reason = '' THEN l.reason ELSE v_reason END
      FROM (
        SELECT id, learned, rule, CASE WHEN rule < 0 THEN greatest(asked, learned) ELSE rule END AS spacing
        FROM (SELECT id, asked, coalesce(v_spacing, learned) AS learned, CASE WHEN v_rule IS NULL THEN rule ELSE greatest(v_rule, -1) END AS rule FROM lanes WHERE name = v_lane) y
      ) x WHERE l.id = x.id;
    END IF;
    IF v_limit IS NOT NULL THEN
      UPDATE lanes SET cap = greatest(v_limit, -1), max_in_flight = CASE WHEN v_limit < 0 THEN places ELSE v_limit END WHERE name = v_lane;
    END IF;
  END LOOP;
END
$$;

CREATE FUNCTION set_lanes(p_now bigint, p_changes json) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_names text[] := ARRAY(SELECT value ->> 0 FROM json_array_elements(p_changes));
  v_lanes integer[];
BEGIN
  PERFORM make_lanes(v_names);
  v_lanes := ARRAY(SELECT id FROM lanes WHERE name = ANY (v_names));
  PERFORM lock_lanes(v_lanes);
  PERFORM change_lanes(tick(p_now), p_changes);
  PERFORM wake(v_lanes);
END
$$;

-- A slot for a request that is not a task: wait, spacing, parked reason or NULL, taken. A NULL spacing asks nothing.
CREATE FUNCTION reserve(p_now bigint, p_name text, p_spacing bigint, p_default bigint, p_places integer, p_within bigint,
                        OUT o_wait bigint, OUT o_spacing bigint, OUT o_parked text, OUT o_taken boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v lanes;
  v_now bigint;
  v_at bigint;
BEGIN
  PERFORM hint();
  SELECT * INTO v FROM lanes WHERE name = p_name FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    -- No run asks anything of this lane yet; this is in force until one does.
    INSERT INTO lanes (name, asked, spacing, places, max_in_flight)
    VALUES (p_name, coalesce(p_spacing, p_default), coalesce(p_spacing, p_default), p_places, p_places) ON CONFLICT DO NOTHING;
    SELECT * INTO v FROM lanes WHERE name = p_name FOR NO KEY UPDATE;
  END IF;
  v_now := tick(p_now);
  o_spacing := CASE WHEN v.rule < 0 THEN greatest(v.spacing, p_spacing) ELSE v.spacing END;
  o_taken := false;
  IF v.parked > 0 AND v.held_until > v_now THEN
    o_wait := v.held_until - v_now;
    o_parked := v.reason;
    RETURN;
  END IF;
  v_at := greatest(v_now, v.next_at, v.held_until);
  o_wait := v_at - v_now;
  IF o_wait > p_within THEN
    RETURN;
  END IF;
  o_taken := true;
  UPDATE lanes SET next_at = v_at + o_spacing WHERE id = v.id;
  PERFORM wake(ARRAY[v.id]);
END
$$;

-- After the clock stepped back: no slot lies further away than anybody would have waited for one.
CREATE FUNCTION forget_future(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_lanes integer[] := ARRAY(
    SELECT id FROM lanes WHERE next_at > p_now + CASE spacing WHEN 0 THEN 0 ELSE greatest(spacing, 60000000) END);
BEGIN
  PERFORM lock_lanes(v_lanes);
  UPDATE lanes SET next_at = p_now + CASE spacing WHEN 0 THEN 0 ELSE greatest(spacing, 60000000) END
  WHERE id = ANY (v_lanes) AND next_at > p_now + CASE spacing WHEN 0 THEN 0 ELSE greatest(spacing, 60000000) END;
  PERFORM wake(v_lanes);
END
$$;

CREATE FUNCTION tally(p_run integer, p_seen bigint DEFAULT 0, p_ready bigint DEFAULT 0, p_delayed bigint DEFAULT 0,
                      p_leased bigint DEFAULT 0, p_done bigint DEFAULT 0, p_dead bigint DEFAULT 0, p_cancelled bigint DEFAULT 0,
                      p_records bigint DEFAULT 0, p_retries bigint DEFAULT 0, p_lost bigint DEFAULT 0,
                      p_stale bigint DEFAULT 0, p_bytes bigint DEFAULT 0, p_trimmed bigint DEFAULT 0)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_shard integer := pg_backend_pid() % 32;
BEGIN
  INSERT INTO counters AS c VALUES
    (p_run, v_shard, p_seen, p_ready, p_delayed, p_leased, p_done, p_dead, p_cancelled, p_records, p_retries, p_lost, p_stale, p_bytes, p_trimmed)
  ON CONFLICT (run, shard) DO UPDATE SET
    seen = c.seen + p_seen, ready = c.ready + p_ready, delayed = c.delayed + p_delayed, leased = c.leased + p_leased,
    done = c.done + p_done, dead = c.dead + p_dead, cancelled = c.cancelled + p_cancelled, records = c.records + p_records,
    retries = c.retries + p_retries, lost = c.lost + p_lost, stale = c.stale + p_stale, bytes = c.bytes + p_bytes, trimmed = c.trimmed + p_trimmed;
END
$$;

-- A task's history with one more attempt; the first and the newest are kept.
CREATE FUNCTION grown(p_history text, p_attempt text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF p_attempt IS NULL THEN
    RETURN p_history;
  ELSIF p_history IS NULL THEN
    RETURN '[' || p_attempt || ']';
  ELSIF json_array_length(p_history::json) < 20 THEN
    RETURN left(p_history, -1) || ',' || p_attempt || ']';
  END IF;
  RETURN (SELECT '[' || string_agg(value::text, ',' ORDER BY n) || ',' || p_attempt || ']'
          FROM json_array_elements(p_history::json) WITH ORDINALITY e(value, n)
          WHERE n = 1 OR n > json_array_length(p_history::json) - 18);
END
$$;
