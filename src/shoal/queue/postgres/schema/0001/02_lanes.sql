-- Lanes, locks and counting. Every verb locks in one order: runs by id (advisory), lanes by id, leases, counters. Only a settle that
-- brings nothing but records takes its leased tasks before the lanes; should reap want both meanwhile, one of the two is repeated.

-- The store's clock, unless a test brings its own.
CREATE FUNCTION clock_micros(p_now bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

-- The first half of our advisory locks: this namespace.
DO $do$ BEGIN
  EXECUTE format('CREATE FUNCTION lock_namespace() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT %s $$', 'runs'::regclass::oid::bigint & 2147483647);
END $do$;

-- Work on a run shares it; what changes the run as a whole has it alone. A run with a page limit counts
-- every task it hands out, so all its verbs have it alone.
CREATE FUNCTION lock_runs(p_runs integer[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM CASE WHEN max_pages > 0 THEN pg_advisory_xact_lock(lock_namespace(), id) ELSE pg_advisory_xact_lock_shared(lock_namespace(), id) END
  FROM (SELECT id, max_pages FROM runs WHERE id = ANY (p_runs) ORDER BY id) r;
END
$$;

-- One that was idle and has gone since it was looked up is made again: the whole verb is repeated.
CREATE FUNCTION lock_lanes(p_lanes integer[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_locked bigint;
BEGIN
  PERFORM 1 FROM lanes WHERE id = ANY (p_lanes) ORDER BY id FOR NO KEY UPDATE;
  GET DIAGNOSTICS v_locked = ROW_COUNT;
  IF v_locked < cardinality(p_lanes) AND v_locked < (SELECT count(DISTINCT lane) FROM unnest(p_lanes) u(lane)) THEN
    RAISE EXCEPTION 'a lane has gone' USING ERRCODE = 'serialization_failure';
  END IF;
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

-- Whether a lane may be asked earlier than is written down; a full one may not be asked at all.
CREATE FUNCTION is_sooner(p_opens bigint, p_wake bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT p_opens IS NOT NULL AND (p_wake IS NULL OR p_wake > p_opens)
$$;

-- Work in these lanes is found as early as it may be asked for; call it last, once all else has changed. A lane that has moved
-- on or is full is left to claims, which look at few runs of the many that may want it.
CREATE FUNCTION wake(p_lanes integer[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE run_lanes h SET wake_at = wake_time(h.ready, l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until)
  FROM lanes l
  WHERE l.id = ANY (p_lanes) AND h.lane = l.id
    AND CASE WHEN h.ready > 0 THEN is_sooner(wake_time(1, l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until), h.wake_at) ELSE h.wake_at IS NOT NULL END;
END
$$;

-- Say anew when these run_lanes may be asked, or that they wait for a place in flight; those of lanes that others have locked stay.
CREATE FUNCTION correct_wake(p_runs integer[], p_lanes integer[], p_needs smallint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_lanes integer[] := ARRAY(SELECT id FROM lanes WHERE id = ANY (p_lanes) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED);
BEGIN
  UPDATE run_lanes h SET wake_at = wake_time(h.ready, l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until)
  FROM unnest(p_runs, p_lanes, p_needs) u(run, lane, needs) JOIN lanes l ON l.id = u.lane
  WHERE u.lane = ANY (v_lanes) AND h.lane = u.lane AND h.run = u.run AND h.needs = u.needs
    AND h.wake_at IS DISTINCT FROM wake_time(h.ready, l.max_in_flight, l.in_flight, l.parked, l.next_at, l.held_until);
END
$$;

-- Apply the slowest pace that any unfinished run asks of each lane.
CREATE FUNCTION apply_pace(p_lanes integer[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE lanes l SET requested = x.requested, places = x.places,
                     max_in_flight = CASE WHEN l.limit_override < 0 THEN x.places ELSE l.limit_override END,
                     spacing = CASE WHEN l.spacing_override < 0 THEN greatest(l.learned, x.requested) ELSE l.spacing_override END
  FROM (
    SELECT u.id, coalesce(max(h.spacing), 0) AS requested, coalesce(min(nullif(h.max_in_flight, 0)), 0) AS places
    FROM unnest(p_lanes) u(id)
    LEFT JOIN (run_lanes h JOIN runs r ON r.id = h.run AND r.state IN ('running', 'paused')) ON h.lane = u.id
    GROUP BY u.id
  ) x
  WHERE l.id = x.id;
END
$$;

-- Lanes of a run that ended, or began again, notice it: what it asks and has there stops or starts to count. What waits there is
-- kept apart while its run has ended; both are sums, so that what changes before a lane's turn counts, too. The caller has the run alone.
CREATE FUNCTION move_lanes(p_run integer, p_lanes integer[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lock_lanes(p_lanes);
  PERFORM 1 FROM runs WHERE id = p_run AND state IN ('running', 'paused');
  IF FOUND THEN
    UPDATE run_lanes SET ready = ready + kept, kept = 0 WHERE lane = ANY (p_lanes) AND run = p_run AND kept <> 0;
  ELSE
    UPDATE run_lanes SET kept = kept + ready, ready = 0 WHERE lane = ANY (p_lanes) AND run = p_run AND ready <> 0;
  END IF;
  PERFORM apply_pace(p_lanes);
  PERFORM wake(p_lanes);
END
$$;

-- All lanes of a run, or none where there are more than a hundred: to sort them takes longer than others may wait.
CREATE FUNCTION lanes_if_few(p_run integer) RETURNS integer[] LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  v_lanes integer[] := ARRAY(SELECT lane FROM run_lanes WHERE run + 0 = p_run LIMIT 101);
BEGIN
  RETURN CASE WHEN cardinality(v_lanes) > 100 THEN '{}' ELSE ARRAY(SELECT DISTINCT l FROM unnest(v_lanes) l ORDER BY l) END;
END
$$;

-- Few of them at once; many are left to lanes_to_move and go_on_moving.
CREATE FUNCTION begin_moving(p_run integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_lanes integer[] := lanes_if_few(p_run);
BEGIN
  UPDATE runs SET lane_cursor = CASE WHEN v_lanes = '{}' AND EXISTS (SELECT 1 FROM run_lanes WHERE run + 0 = p_run) THEN 0 ELSE -1 END WHERE id = p_run;
  PERFORM move_lanes(p_run, v_lanes);
END
$$;

-- Lanes that have not noticed yet, after where the cursor is; no row: all have.
CREATE FUNCTION lanes_to_move(p_run integer) RETURNS TABLE (o_cursor integer, o_lanes integer[]) LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT r.lane_cursor, ARRAY(SELECT DISTINCT h.lane FROM run_lanes h WHERE h.run + 0 = r.id AND h.lane > r.lane_cursor ORDER BY h.lane)
  FROM runs r WHERE r.id = p_run AND r.lane_cursor >= 0
$$;

-- Some of them. False: somebody else went on, or the run has changed again; look anew.
CREATE FUNCTION go_on_moving(p_run integer, p_cursor integer, p_lanes integer[], p_last boolean) RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  PERFORM relax_durability();
  PERFORM pg_advisory_xact_lock(lock_namespace(), p_run);
  UPDATE runs SET lane_cursor = CASE WHEN p_last THEN -1 ELSE p_lanes[cardinality(p_lanes)] END WHERE id = p_run AND lane_cursor = p_cursor;
  IF FOUND THEN
    PERFORM move_lanes(p_run, p_lanes);
    RETURN true;
  END IF;
  RETURN false;
END
$$;

-- Whether workers of these runs may be asleep: nothing that any worker could do is due or will be soon.
CREATE FUNCTION is_idle(p_now bigint, p_runs integer[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN NOT EXISTS (SELECT 1 FROM run_lanes WHERE run + 0 = ANY (p_runs) AND needs = 0 AND wake_at <= p_now + 2000000);
END
$$;

-- The numbers of combinations of capabilities ("a+b"), new ones included; NULL for those beyond p_most. It is a step of
-- its own: a number stays, whatever becomes of the tasks it was asked for.
CREATE FUNCTION number_needs(p_run integer, p_sets text[], p_most integer) RETURNS smallint[] LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_names text[];
  v_number smallint;
  v_numbers smallint[] := '{}';
BEGIN
  PERFORM 1 FROM runs WHERE id = p_run;
  IF NOT FOUND THEN
    RETURN array_fill(0::smallint, ARRAY[cardinality(p_sets)]);
  END IF;
  FOR i IN 1 .. cardinality(p_sets) LOOP
    v_names := string_to_array(p_sets[i], '+');
    SELECT needs INTO v_number FROM run_needs WHERE run = p_run AND names = v_names;
    IF NOT FOUND THEN
      PERFORM pg_advisory_xact_lock(lock_namespace(), p_run);
      SELECT needs INTO v_number FROM run_needs WHERE run = p_run AND names = v_names;
      IF NOT FOUND THEN
        INSERT INTO run_needs (run, needs, names)
        SELECT p_run, 1 + count(*), v_names FROM run_needs WHERE run = p_run HAVING count(*) < p_most
        RETURNING needs INTO v_number;
      END IF;
    END IF;
    v_numbers := v_numbers || v_number;
  END LOOP;
  RETURN v_numbers;
END
$$;

-- Places for work with needs; the lanes are locked.
CREATE FUNCTION make_places(p_runs integer[], p_lanes text[], p_needs smallint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO run_lanes (run, lane, needs)
    SELECT DISTINCT u.run, l.id, u.needs FROM unnest(p_runs, p_lanes, p_needs) u(run, lane, needs) JOIN lanes l ON l.name = u.lane WHERE u.needs > 0
    ON CONFLICT DO NOTHING;
END
$$;

CREATE FUNCTION count_needs() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO needs_counters AS c VALUES (NEW.run, NEW.needs, pg_backend_pid() % 32, NEW.ready - OLD.ready)
  ON CONFLICT (run, needs, shard) DO UPDATE SET ready = c.ready + excluded.ready;
  RETURN NULL;
END
$$;
CREATE TRIGGER count_needs AFTER UPDATE OF ready ON run_lanes FOR EACH ROW WHEN (NEW.needs > 0 AND NEW.ready <> OLD.ready) EXECUTE FUNCTION count_needs();

-- Wake them; only a hint, and only where they may be asleep: notifications make commits wait for each other.
CREATE FUNCTION notify_workers() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('shoal_' || lock_namespace(), '');
END
$$;

-- For leases and slots, whose holders die with what a power loss undoes: the commit does not wait for the disk.
CREATE FUNCTION relax_durability() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
END
$$;

-- What runs ask of lanes that are locked. A NULL spacing is no news; a new run_lane then gets the default.
CREATE FUNCTION set_run_paces(p_runs integer[], p_lanes integer[], p_spacings bigint[], p_places integer[], p_spacing bigint, p_place integer)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_changed integer[];
BEGIN
  WITH pairs AS MATERIALIZED (
    SELECT u.run, u.lane, coalesce(u.spacing, p_spacing) AS spacing, coalesce(u.places, p_place) AS places,
           u.spacing IS NOT NULL AS news, h.tid IS NULL AS missing, h.tid, h.spacing AS old_spacing, h.max_in_flight AS old_places
    FROM unnest(p_runs, p_lanes, p_spacings, p_places) u(run, lane, spacing, places)
    LEFT JOIN LATERAL (  -- one look-up each, however few lanes there were when the plan was made
      SELECT ctid AS tid, spacing, max_in_flight FROM run_lanes WHERE lane = u.lane AND run = u.run AND needs = 0 OFFSET 0) h ON true
  ), added AS (
    -- A newcomer to a lane starts level with the run that was served least for its weight: it catches up with nobody.
    INSERT INTO run_lanes (run, lane, spacing, max_in_flight, picks)
    SELECT p.run, p.lane, p.spacing, p.places, coalesce((SELECT greatest(1, weight) FROM runs WHERE id = p.run) * (
      SELECT min(h.picks / greatest(1, r.weight)) FROM run_lanes h JOIN runs r ON r.id = h.run AND r.state = 'running' WHERE h.lane = p.lane AND h.needs = 0), 0)
    FROM pairs p WHERE p.missing
    RETURNING lane
  ), changed AS (
    UPDATE run_lanes h SET spacing = p.spacing, max_in_flight = p.places
    FROM pairs p
    WHERE p.news AND (p.old_spacing, p.old_places) <> (p.spacing, p.places) AND h.ctid = p.tid  -- its lane is locked: it stays where it is
    RETURNING h.lane
  )
  SELECT array_agg(DISTINCT lane) INTO v_changed FROM (SELECT lane FROM added UNION SELECT lane FROM changed) x;
  IF v_changed IS NOT NULL THEN
    PERFORM apply_pace(v_changed);
  END IF;
END
$$;

-- What answers taught about hosts, and what people set; the lanes are there and locked. Each change is
-- [lane, hold_for, spacing, park_for, reason, spacing_override, limit] with durations in µs or null.
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
      UPDATE lanes l SET learned = x.learned, spacing_override = x.spacing_override, spacing = x.spacing, next_at = l.next_at + greatest(0, x.spacing - l.spacing),
                         reason = CASE WHEN v_spacing IS NULL OR v_reason = '' THEN l.reason ELSE v_reason END
      FROM (
        SELECT id, learned, spacing_override, CASE WHEN spacing_override < 0 THEN greatest(requested, learned) ELSE spacing_override END AS spacing
        FROM (SELECT id, requested, coalesce(v_spacing, learned) AS learned, CASE WHEN v_rule IS NULL THEN spacing_override ELSE greatest(v_rule, -1) END AS spacing_override FROM lanes WHERE name = v_lane) y
      ) x WHERE l.id = x.id;
    END IF;
    IF v_limit IS NOT NULL THEN
      UPDATE lanes SET limit_override = greatest(v_limit, -1), max_in_flight = CASE WHEN v_limit < 0 THEN places ELSE v_limit END WHERE name = v_lane;
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
  PERFORM change_lanes(clock_micros(p_now), p_changes);
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
  PERFORM relax_durability();
  SELECT * INTO v FROM lanes WHERE name = p_name FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    -- No run asks anything of this lane yet; this is in force until one does.
    INSERT INTO lanes (name, requested, spacing, places, max_in_flight)
    VALUES (p_name, coalesce(p_spacing, p_default), coalesce(p_spacing, p_default), p_places, p_places) ON CONFLICT DO NOTHING;
    SELECT * INTO v FROM lanes WHERE name = p_name FOR NO KEY UPDATE;
  END IF;
  v_now := clock_micros(p_now);
  o_spacing := CASE WHEN v.spacing_override < 0 THEN greatest(v.spacing, p_spacing) ELSE v.spacing END;
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
CREATE FUNCTION clamp_future_slots(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
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

-- Notice a clock that stepped back; remember the time to the second.
CREATE FUNCTION note_clock(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_latest bigint;
BEGIN
  SELECT value INTO v_latest FROM meta WHERE key = 'latest';
  IF p_now < v_latest - 1000000 THEN
    PERFORM clamp_future_slots(p_now);
  END IF;
  IF abs(p_now - v_latest) > 1000000 THEN
    UPDATE meta SET value = p_now
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM meta WHERE key = 'latest' FOR UPDATE SKIP LOCKED));
  END IF;
END
$$;

-- Whether a task is of a built-in kind, which is no page of its run.
CREATE FUNCTION is_aside(p_kind text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT p_kind LIKE 'page:%' $$;

CREATE FUNCTION add_counters(p_run integer, p_seen bigint DEFAULT 0, p_ready bigint DEFAULT 0, p_delayed bigint DEFAULT 0,
                      p_leased bigint DEFAULT 0, p_done bigint DEFAULT 0, p_dead bigint DEFAULT 0, p_cancelled bigint DEFAULT 0,
                      p_records bigint DEFAULT 0, p_retries bigint DEFAULT 0, p_lost bigint DEFAULT 0,
                      p_stale bigint DEFAULT 0, p_bytes bigint DEFAULT 0, p_trimmed bigint DEFAULT 0, p_outbox bigint DEFAULT 0, p_discarded bigint DEFAULT 0, p_aside bigint DEFAULT 0)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_shard integer := pg_backend_pid() % 32;
BEGIN
  INSERT INTO counters AS c VALUES
    (p_run, v_shard, p_seen, p_ready, p_delayed, p_leased, p_done, p_dead, p_cancelled, p_records, p_retries, p_lost, p_stale, p_bytes, p_trimmed, p_outbox, p_discarded, p_aside)
  ON CONFLICT (run, shard) DO UPDATE SET
    seen = c.seen + p_seen, ready = c.ready + p_ready, delayed = c.delayed + p_delayed, leased = c.leased + p_leased,
    done = c.done + p_done, dead = c.dead + p_dead, cancelled = c.cancelled + p_cancelled, records = c.records + p_records,
    retries = c.retries + p_retries, lost = c.lost + p_lost, stale = c.stale + p_stale, bytes = c.bytes + p_bytes, trimmed = c.trimmed + p_trimmed,
    outbox = c.outbox + p_outbox, discarded = c.discarded + p_discarded, aside = c.aside + p_aside;
END
$$;

-- A task's history with one more attempt; the first and the newest are kept. One that nobody can read begins anew.
CREATE FUNCTION append_attempt(p_history text, p_attempt text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
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
EXCEPTION WHEN data_exception OR statement_too_complex THEN
  RETURN '[{"at":0,"worker":"","cause":"garbled","message":"its history cannot be read"},' || p_attempt || ']';
END
$$;
