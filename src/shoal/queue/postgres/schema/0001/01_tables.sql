-- Tables. Times and durations are microseconds. A task id is (run << 32) | number.
-- A live task is a row of exactly one of ready, delayed and leased; rows move, they have no state column.

CREATE TABLE meta (key text PRIMARY KEY, value bigint NOT NULL);
INSERT INTO meta VALUES ('latest', 0);   -- the clock as last seen, to the second, to notice when it steps back

CREATE SEQUENCE lease_numbers AS bigint MINVALUE 1;
CREATE SEQUENCE run_numbers AS integer MINVALUE 1;
CREATE SEQUENCE batch_numbers AS bigint MINVALUE 1;
CREATE SEQUENCE task_numbers AS bigint MINVALUE 1 MAXVALUE 4294967295 CYCLE;

CREATE TABLE runs (
  id integer PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE, scraper text NOT NULL, key text NOT NULL, state text NOT NULL,
  created_at bigint NOT NULL, changed_at bigint NOT NULL, finished_at bigint NOT NULL DEFAULT 0,
  weight integer NOT NULL, priority integer NOT NULL, max_pages bigint NOT NULL, spec text NOT NULL,
  last_claim_at bigint NOT NULL DEFAULT 0,            -- when a worker that serves it last asked for work, to the second
  share double precision NOT NULL DEFAULT 0,     -- tasks handed out / weight: the run with the least is next
  bands integer NOT NULL DEFAULT 0,              -- a bit for every band that it ever had tasks of
  leftovers boolean NOT NULL DEFAULT false,      -- tasks that were cancelled with it are kept, so that this can be undone, or are still to be removed
  undo_until bigint NOT NULL DEFAULT 0, state_before text NOT NULL DEFAULT '',   -- until when its cancel can be undone, and what it then is again
  kept_ready bigint NOT NULL DEFAULT 0, kept_delayed bigint NOT NULL DEFAULT 0,   -- of the tasks that were cancelled with it: what waits
  lane_cursor integer NOT NULL DEFAULT -1,       -- it ended or began again, which lanes up to this one have noticed; -1: all have
  identity_only boolean NOT NULL DEFAULT false,           -- of some tasks only the identity is left
  seen_set text NOT NULL DEFAULT '', seen_for bigint NOT NULL DEFAULT 0,
  outbox_full boolean NOT NULL DEFAULT false,    -- too many entries wait to be drained: nothing of it is handed out
  dead_retention bigint NOT NULL DEFAULT 0       -- dead letters are removed after so long; 0: with the run
) WITH (fillfactor = 50);
CREATE INDEX runs_by_key ON runs USING hash (key);
CREATE INDEX runs_by_scraper ON runs (scraper, id);
CREATE INDEX runs_running ON runs (id) WHERE state = 'running';
CREATE INDEX runs_leftovers ON runs (undo_until) WHERE leftovers;
CREATE INDEX runs_moving ON runs (id) WHERE lane_cursor >= 0;
CREATE INDEX runs_discarding ON runs (id) WHERE dead_retention > 0;
CREATE INDEX runs_with_seen_set ON runs (id) WHERE seen_set <> '';

-- The account of a run, spread over rows so that workers that settle at once do not wait for each other.
CREATE TABLE counters (
  run integer NOT NULL, shard integer NOT NULL,
  seen bigint NOT NULL DEFAULT 0, ready bigint NOT NULL DEFAULT 0, delayed bigint NOT NULL DEFAULT 0,
  leased bigint NOT NULL DEFAULT 0, done bigint NOT NULL DEFAULT 0, dead bigint NOT NULL DEFAULT 0,
  cancelled bigint NOT NULL DEFAULT 0, records bigint NOT NULL DEFAULT 0, retries bigint NOT NULL DEFAULT 0,
  lost bigint NOT NULL DEFAULT 0, stale bigint NOT NULL DEFAULT 0, bytes bigint NOT NULL DEFAULT 0,
  trimmed bigint NOT NULL DEFAULT 0, outbox bigint NOT NULL DEFAULT 0, discarded bigint NOT NULL DEFAULT 0,
  aside bigint NOT NULL DEFAULT 0,   -- of those done and dead, so many are of a built-in kind, which are no pages
  PRIMARY KEY (run, shard)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- One row per host. Whoever holds the lock of this row may change the lane, its run_lanes and its live tasks.
-- requested and places are what runs ask for, learned what answers taught, spacing_override and limit_override what a person set (or -1);
-- spacing and max_in_flight are what is in force; given: tasks ever handed out, of whatever run.
CREATE TABLE lanes (
  id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE,
  next_at bigint NOT NULL DEFAULT 0,
  requested bigint NOT NULL DEFAULT 0, learned bigint NOT NULL DEFAULT 0, spacing bigint NOT NULL DEFAULT 0,
  max_in_flight integer NOT NULL DEFAULT 0, in_flight integer NOT NULL DEFAULT 0,
  held_until bigint NOT NULL DEFAULT 0, parked integer NOT NULL DEFAULT 0, reason text NOT NULL DEFAULT '',
  places integer NOT NULL DEFAULT 0, spacing_override bigint NOT NULL DEFAULT -1, limit_override integer NOT NULL DEFAULT -1, given bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Where a run has ready work: claims look here, never at the tasks. wake_at is NULL when the lane has nothing ready for
-- the run, else never later than when the lane may next be asked: a claim that comes too early corrects it, with NULL if the
-- lane is full. So what one run takes from a lane need not be written down for all others that want it.
-- Work that needs capabilities has rows of its own, so that claims that lack them do not meet it; what the run asks of
-- the lane and its picks stand in the row without needs (0), which is always there.
CREATE TABLE run_lanes (
  lane integer NOT NULL, run integer NOT NULL, ready integer NOT NULL DEFAULT 0, wake_at bigint,
  spacing bigint NOT NULL DEFAULT 0, max_in_flight integer NOT NULL DEFAULT 0,   -- what this run asks of the lane
  picks bigint NOT NULL DEFAULT 0, needs smallint NOT NULL DEFAULT 0,
  kept integer NOT NULL DEFAULT 0,   -- in place of ready, of a run that was cancelled
  PRIMARY KEY (lane, run, needs)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- By an expression, so that only who asks for `run + 0` gets them. A plan that is made while there are few lanes, and used
-- when there are 100,000, would take them for as good as the primary key and walk through a whole run for each of its lanes.
CREATE INDEX run_lanes_due ON run_lanes ((run + 0), needs, wake_at);
CREATE INDEX run_lanes_kept ON run_lanes ((run + 0)) WHERE kept <> 0;

-- The combinations of capabilities that tasks of a run need, by number from 1 on; and how many tasks of each are ready,
-- spread over rows like the counters.
CREATE TABLE run_needs (run integer NOT NULL, needs smallint NOT NULL, names text[] NOT NULL, PRIMARY KEY (run, needs));
CREATE TABLE needs_counters (
  run integer NOT NULL, needs smallint NOT NULL, shard integer NOT NULL, ready bigint NOT NULL DEFAULT 0, PRIMARY KEY (run, needs, shard)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- What is looked for over all runs is looked for in each that is open, so that what is only kept costs nobody anything.
-- band is that of the priority; claim_band is the same, or -1 for a task that is to be claimed alone.
CREATE TABLE ready (
  id bigint PRIMARY KEY, run integer NOT NULL, lane integer NOT NULL, claim_band smallint NOT NULL, band smallint NOT NULL,
  due bigint NOT NULL, added_at bigint NOT NULL, expires_at bigint,
  returned_lease bigint NOT NULL DEFAULT 0,   -- the lease it was last returned under by its own worker
  attempts integer NOT NULL DEFAULT 0, lost integer NOT NULL DEFAULT 0,
  priority bigint NOT NULL, depth integer NOT NULL, parent bigint, digest bytea NOT NULL,
  kind text NOT NULL, url text NOT NULL, meta text, request_options text, auto_ack boolean NOT NULL DEFAULT false, needs smallint NOT NULL DEFAULT 0, history text
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ready_next ON ready (lane, run, needs, claim_band, due, id);
CREATE INDEX ready_isolated ON ready (run, needs, due) WHERE claim_band = -1;
CREATE INDEX ready_expiring ON ready (run, expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE delayed (
  id bigint PRIMARY KEY, run integer NOT NULL, lane integer NOT NULL, claim_band smallint NOT NULL, band smallint NOT NULL,
  due bigint NOT NULL, added_at bigint NOT NULL, expires_at bigint, returned_lease bigint NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0, lost integer NOT NULL DEFAULT 0,
  priority bigint NOT NULL, depth integer NOT NULL, parent bigint, digest bytea NOT NULL,
  kind text NOT NULL, url text NOT NULL, meta text, request_options text, auto_ack boolean NOT NULL DEFAULT false, needs smallint NOT NULL DEFAULT 0, history text
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX delayed_due ON delayed (run, due);
CREATE INDEX delayed_expiring ON delayed (run, expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE leased (
  id bigint PRIMARY KEY, run integer NOT NULL, lane integer NOT NULL, band smallint NOT NULL,
  due bigint NOT NULL, added_at bigint NOT NULL, expires_at bigint, returned_lease bigint NOT NULL,
  attempts integer NOT NULL, lost integer NOT NULL,
  priority bigint NOT NULL, depth integer NOT NULL, parent bigint, digest bytea NOT NULL,
  kind text NOT NULL, url text NOT NULL, meta text, request_options text, auto_ack boolean NOT NULL DEFAULT false, needs smallint NOT NULL DEFAULT 0, history text,
  lease bigint NOT NULL, slot bigint NOT NULL, claimed_at bigint NOT NULL,
  cancelled boolean NOT NULL DEFAULT false   -- with its run; it may still bring its records
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX leased_by_lease ON leased (lease);

CREATE TABLE leases (
  number bigint PRIMARY KEY, worker text NOT NULL, request text NOT NULL, expires_at bigint NOT NULL,
  started bigint[]   -- NULL: never extended
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX leases_by_worker ON leases (worker);
CREATE INDEX leases_by_end ON leases (expires_at);

-- History is kept in partitions: each holds the runs that were started within some days, as one partition of each
-- table below, and goes as a whole once all its runs are gone (08_partitions.sql).
CREATE TABLE partitions (first integer PRIMARY KEY, made_at bigint NOT NULL);

-- Every request a run has ever met, kept when the tasks are gone. A negative task marks a URL
-- that a redirect of that task led to.
CREATE TABLE seen (run integer NOT NULL, digest bytea NOT NULL, task bigint NOT NULL, PRIMARY KEY (run, digest)) PARTITION BY RANGE (run);
CREATE INDEX seen_elsewhere ON seen (run, task) WHERE task < 0;

-- Named seen-sets, which outlive their runs. A set without a name was cleared: its entries are still to be removed.
-- cursor: how far the pass has come that removes what is remembered no more; swept_at: when the last one ended.
CREATE TABLE seen_sets (
  id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text COLLATE "C" UNIQUE, seen_for bigint NOT NULL,
  created_at bigint NOT NULL, swept_at bigint NOT NULL, cursor bytea
);
-- How many are in a set, spread over rows so that those who add at once do not wait for each other.
CREATE TABLE seen_set_counters (
  seen_set integer NOT NULL, shard integer NOT NULL, entries bigint NOT NULL, changed_at bigint NOT NULL, PRIMARY KEY (seen_set, shard)
) WITH (fillfactor = 50);
CREATE TABLE seen_entries (seen_set integer NOT NULL, digest bytea NOT NULL, hour integer NOT NULL, PRIMARY KEY (seen_set, digest));

-- Tasks that ended well, or were cancelled one by one. Their records are in that batch, or begin with that one.
CREATE TABLE ended (
  id bigint PRIMARY KEY, state text NOT NULL, lease bigint NOT NULL, returned_lease bigint NOT NULL, lane integer NOT NULL,
  ended_at bigint NOT NULL, added_at bigint NOT NULL, attempts integer NOT NULL, lost integer NOT NULL,
  priority bigint NOT NULL, depth integer NOT NULL, parent bigint, digest bytea NOT NULL, records integer NOT NULL,
  kind text NOT NULL, url text NOT NULL, cause text NOT NULL, history text, batch bigint, first_record bigint
) PARTITION BY RANGE (id);
CREATE INDEX ended_cancelled ON ended (id) WHERE state = 'cancelled';

-- The records of one settle are one batch. Batches are numbered when they are first read: numbers given
-- while writing would become visible out of order, and who reads on from the last one would miss some.
CREATE TABLE batches (
  run integer NOT NULL, id bigint NOT NULL, size integer NOT NULL, first bigint, tasks bigint[] NOT NULL, data text[] NOT NULL,
  PRIMARY KEY (run, id)
) PARTITION BY RANGE (run);
ALTER TABLE batches ALTER data SET STORAGE EXTERNAL;   -- compressing costs more than writing
CREATE INDEX batches_numbered ON batches (run, first);
CREATE INDEX batches_fresh ON batches (run, id) WHERE first IS NULL;

CREATE TABLE dead (
  id bigint PRIMARY KEY, lease bigint NOT NULL, returned_lease bigint NOT NULL, lane integer NOT NULL, band smallint NOT NULL,
  ended_at bigint NOT NULL, added_at bigint NOT NULL, expires_at bigint, attempts integer NOT NULL, lost integer NOT NULL,
  priority bigint NOT NULL, depth integer NOT NULL, parent bigint, digest bytea NOT NULL,
  kind text NOT NULL, url text NOT NULL, meta text, request_options text, auto_ack boolean NOT NULL DEFAULT false, needs smallint NOT NULL DEFAULT 0, cause text NOT NULL, history text, evidence text
);

CREATE INDEX dead_by_age ON dead ((id >> 32), ended_at);
CREATE TABLE discarded (id bigint PRIMARY KEY);   -- dead letters that were removed when their retention was over

-- What outcomes have counted for a run, as JSON objects: one is added with a settle, and now and then they are made one.
CREATE TABLE run_counters (
  run integer NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY, counts json NOT NULL, PRIMARY KEY (run, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- What settled tasks want done elsewhere, until it is acknowledged.
-- What a run remembers of its pages, by the id of the task.
CREATE TABLE page_states (id bigint PRIMARY KEY, head bytea NOT NULL, body bytea NOT NULL);

CREATE TABLE outbox (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run integer NOT NULL, kind text NOT NULL, key text NOT NULL, data bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX outbox_by_kind ON outbox (kind, seq);
CREATE INDEX outbox_by_run ON outbox (run);

CREATE TABLE skips (
  run integer NOT NULL, reason text NOT NULL, shard integer NOT NULL, count bigint NOT NULL, PRIMARY KEY (run, reason, shard)
) WITH (fillfactor = 50);
CREATE TABLE skip_samples (run integer NOT NULL, reason text NOT NULL, url text NOT NULL);
CREATE INDEX skip_samples_by_reason ON skip_samples (run, reason);

CREATE TABLE workers (
  id text PRIMARY KEY, name text NOT NULL, host text NOT NULL, pid bigint NOT NULL, version text NOT NULL,
  started_at bigint NOT NULL, seen_at bigint NOT NULL, state text NOT NULL, activity text NOT NULL,
  serves text[] NOT NULL, capabilities text[] NOT NULL DEFAULT '{}', code text NOT NULL, done bigint NOT NULL, failed bigint NOT NULL, memory bigint NOT NULL,
  command text NOT NULL DEFAULT '',   -- what a person wants of it
  counters bytea NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
ALTER TABLE workers ALTER counters SET STORAGE EXTERNAL;   -- it is replaced every few seconds

CREATE TABLE documents (
  kind text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, version bigint NOT NULL, made_at bigint NOT NULL, text text NOT NULL,
  PRIMARY KEY (kind, name, version)
);
