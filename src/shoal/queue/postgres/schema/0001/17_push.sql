-- Push: tasks are added, and those that are new and may start within the horizon leased to a named worker, in one step.

-- Of new tasks (counted from 1 among p_digests) those that may be leased, with their slots. Their lanes are locked.
CREATE FUNCTION pushable(p_now bigint, p_run integer, p_digests bytea[], p_fresh integer[], p_has text[], p_horizon bigint)
RETURNS TABLE (o_id bigint, o_lane integer, o_needs smallint, o_slot bigint) LANGUAGE plpgsql AS $$
DECLARE
  v_left bigint;
BEGIN
  SELECT CASE WHEN max_pages > 0 THEN max_pages - (SELECT coalesce(sum(done + dead + discarded + leased - aside), 0) FROM counters WHERE run = p_run) END INTO v_left
  FROM runs WHERE id = p_run AND state = 'running' AND NOT outbox_full;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  RETURN QUERY
    SELECT x.id, x.lane, x.needs, x.slot
    FROM (
      SELECT r.id, r.lane, r.needs, u.ord, greatest(l.next_at, l.held_until, p_now) + (row_number() OVER here - 1) * l.spacing AS slot,
             row_number() OVER here AS k, CASE WHEN l.max_in_flight > 0 THEN l.max_in_flight - l.in_flight END AS free
      FROM unnest(p_fresh) u(ord) JOIN seen s ON s.run = p_run AND s.digest = p_digests[u.ord] JOIN ready r ON r.id = s.task JOIN lanes l ON l.id = r.lane
      WHERE (r.expires_at IS NULL OR r.expires_at > p_now) AND l.parked = 0
        AND (r.needs = 0 OR EXISTS (SELECT 1 FROM run_needs n WHERE n.run = p_run AND n.needs = r.needs AND n.names <@ p_has))
      WINDOW here AS (PARTITION BY r.lane ORDER BY u.ord)
    ) x
    WHERE x.slot <= p_now + p_horizon AND (x.free IS NULL OR x.k <= x.free)
    ORDER BY x.ord LIMIT greatest(0, coalesce(v_left, cardinality(p_fresh)));
END
$$;

-- As JSON: added, what add answers (NULL: the run takes no work); lease (0: none); leased, which of the tasks are under it.
CREATE FUNCTION push(p_now bigint, p_worker text, p_request text, p_lease bigint, p_has text[], p_horizon bigint,
                     p_run integer, p_names text[], p_spacings bigint[], p_places integer[], p_spacing bigint, p_place integer,
                     p_digests bytea[], p_lanes text[], p_urls text[], p_kinds text[],
                     p_priorities bigint[], p_bands smallint[], p_depths integer[], p_parents bigint[],
                     p_metas text[], p_request_options text[], p_auto_acks boolean[], p_needs smallint[], p_delays bigint[], p_ttls bigint[], p_revisits boolean[])
RETURNS json LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_added integer[];
  v_now bigint;
  v_number bigint;
  v_tasks bigint[];
  v_on integer[];
  v_needs smallint[];
  v_slots bigint[];
BEGIN
  v_added := add(p_now, p_run, p_names, p_spacings, p_places, p_spacing, p_place, p_digests, p_lanes, p_urls, p_kinds,
                 p_priorities, p_bands, p_depths, p_parents, p_metas, p_request_options, p_auto_acks, p_needs, p_delays, p_ttls, p_revisits);
  v_now := clock_micros(p_now);
  -- Looked for only now: whoever asks the same at the same time has waited for the lanes.
  SELECT number INTO v_number FROM leases WHERE worker = p_worker AND request = p_request AND expires_at > v_now ORDER BY number DESC LIMIT 1;
  IF NOT FOUND THEN
    SELECT array_agg(o_id), array_agg(o_lane), array_agg(o_needs), array_agg(o_slot) INTO v_tasks, v_on, v_needs, v_slots
    FROM pushable(v_now, p_run, p_digests, ARRAY(SELECT n FROM unnest(v_added) n WHERE n > 0), p_has, p_horizon);
  END IF;
  IF v_tasks IS NOT NULL THEN
    v_number := next_lease(v_now);
    INSERT INTO leases (number, worker, request, expires_at) VALUES (v_number, p_worker, p_request, v_now + p_lease);
    WITH moved AS (
      DELETE FROM ready r USING unnest(v_tasks, v_slots) u(task, slot) WHERE r.id = u.task RETURNING r.*, u.slot
    )
    INSERT INTO leased SELECT id, run, lane, band, due, added_at, expires_at, returned_lease, attempts, lost, priority, depth, parent, digest, kind, url, meta, request_options, auto_ack, needs, history,
                              v_number, slot, v_now, false FROM moved;
    UPDATE lanes l SET in_flight = l.in_flight + g.n, given = l.given + g.n, next_at = g.last + l.spacing
    FROM (SELECT lane, count(*)::integer AS n, max(slot) AS last FROM unnest(v_on, v_slots) u(lane, slot) GROUP BY lane) g WHERE l.id = g.lane;
    UPDATE run_lanes h SET ready = h.ready - g.n
    FROM (SELECT lane, needs, count(*)::integer AS n FROM unnest(v_on, v_needs) u(lane, needs) GROUP BY lane, needs) g
    WHERE h.run = p_run AND h.lane = g.lane AND h.needs = g.needs;
    UPDATE run_lanes h SET picks = h.picks + g.n
    FROM (SELECT lane, count(*) AS n FROM unnest(v_on) u(lane) GROUP BY lane) g WHERE h.run = p_run AND h.lane = g.lane AND h.needs = 0;
    UPDATE runs SET share = share + cardinality(v_tasks)::float / greatest(1, weight) WHERE id = p_run;
    PERFORM add_counters(p_run, p_ready => -cardinality(v_tasks), p_leased => cardinality(v_tasks));
    PERFORM wake(ARRAY(SELECT DISTINCT lane FROM unnest(v_on) u(lane)));
  END IF;
  RETURN json_build_object('added', v_added, 'lease', coalesce(v_number, 0), 'leased', ARRAY(
    SELECT min(u.ord)::integer FROM unnest(p_digests) WITH ORDINALITY u(digest, ord)
    JOIN leased t ON t.lease = v_number AND t.run = p_run AND t.digest = u.digest AND NOT t.cancelled GROUP BY t.id));
END
$$;
