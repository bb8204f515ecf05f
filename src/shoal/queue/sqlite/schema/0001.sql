-- Times and durations are microseconds. A task id is (run << 32) | number.

CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('last_lease', 0);

-- One row per run with its exact account, so that stats cost one look-up.
CREATE TABLE runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE, scraper TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL,
  created_at INTEGER NOT NULL, changed_at INTEGER NOT NULL, finished_at INTEGER NOT NULL DEFAULT 0,
  weight INTEGER NOT NULL, priority INTEGER NOT NULL, max_pages INTEGER NOT NULL, spec TEXT NOT NULL,
  next_task INTEGER NOT NULL DEFAULT 1, next_record INTEGER NOT NULL DEFAULT 1,
  last_claim_at INTEGER NOT NULL DEFAULT 0,   -- when a worker that serves it last asked for work, to the second
  share REAL NOT NULL DEFAULT 0,   -- tasks handed out / weight: the run with the least is next
  bands INTEGER NOT NULL DEFAULT 0,   -- a bit for every band that it ever had tasks of
  leftovers INTEGER NOT NULL DEFAULT 0,   -- 1: tasks that were cancelled with it are kept, so that this can be undone, or are still to be removed
  undo_until INTEGER NOT NULL DEFAULT 0, state_before TEXT NOT NULL DEFAULT '',   -- until when its cancel can be undone, and what it then is again
  kept_ready INTEGER NOT NULL DEFAULT 0, kept_delayed INTEGER NOT NULL DEFAULT 0,   -- of the tasks that were cancelled with it: what waits
  lane_cursor INTEGER NOT NULL DEFAULT -1,   -- it ended or began again, which lanes up to this one have noticed; -1: all have
  short_digests INTEGER NOT NULL DEFAULT 0,   -- 1: of some identities only the beginning is known; they came from a queue that keeps no more
  seen INTEGER NOT NULL DEFAULT 0, ready INTEGER NOT NULL DEFAULT 0, delayed INTEGER NOT NULL DEFAULT 0,
  leased INTEGER NOT NULL DEFAULT 0, done INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0, records INTEGER NOT NULL DEFAULT 0, retries INTEGER NOT NULL DEFAULT 0,
  lost INTEGER NOT NULL DEFAULT 0, stale INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
  trimmed INTEGER NOT NULL DEFAULT 0,   -- records that have gone to a store of their own
  seen_set TEXT NOT NULL DEFAULT '', seen_for INTEGER NOT NULL DEFAULT 0,
  outbox INTEGER NOT NULL DEFAULT 0,   -- entries that wait to be drained
  dead_retention INTEGER NOT NULL DEFAULT 0,   -- dead letters are removed after so long; 0: with the run
  discarded INTEGER NOT NULL DEFAULT 0,   -- so many were
  aside INTEGER NOT NULL DEFAULT 0   -- of those done and dead, so many are of a built-in kind, which are no pages
);
CREATE INDEX runs_by_key ON runs(key);
CREATE INDEX runs_by_scraper ON runs(scraper);
CREATE INDEX runs_open ON runs(id) WHERE state IN ('running', 'paused');
CREATE INDEX runs_running ON runs(id) WHERE state = 'running';
CREATE INDEX runs_leftovers ON runs(undo_until) WHERE leftovers = 1;
CREATE INDEX runs_discarding ON runs(id) WHERE dead_retention > 0;
CREATE INDEX runs_moving ON runs(id) WHERE lane_cursor >= 0;

-- One row per host. spacing and max_in_flight are what is in force: what a person set (the overrides; below 0: nobody
-- did), or else the slowest of the others. given: tasks ever handed out, of whatever run.
CREATE TABLE lanes (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
  next_at INTEGER NOT NULL DEFAULT 0,
  requested INTEGER NOT NULL DEFAULT 0, learned INTEGER NOT NULL DEFAULT 0, spacing INTEGER NOT NULL DEFAULT 0,
  max_in_flight INTEGER NOT NULL DEFAULT 0, in_flight INTEGER NOT NULL DEFAULT 0,
  held_until INTEGER NOT NULL DEFAULT 0, parked INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '',
  spacing_override INTEGER NOT NULL DEFAULT -1, limit_override INTEGER NOT NULL DEFAULT -1, given INTEGER NOT NULL DEFAULT 0
);

-- Where a run has ready work: claims look here, never at the tasks. wake_at is NULL when the lane has nothing ready for
-- the run, else never later than when the lane may next be asked: a claim that comes too early corrects it, with NULL if the
-- lane is full. So what one run takes from a lane need not be written down for all others that want it.
-- Work that needs capabilities has rows of its own, so that claims that lack them do not meet it; what the run asks of
-- the lane and its picks stand in the row without needs (0), which is always there.
CREATE TABLE run_lanes (
  run INTEGER NOT NULL, lane INTEGER NOT NULL, needs INTEGER NOT NULL DEFAULT 0, ready INTEGER NOT NULL DEFAULT 0, wake_at INTEGER,
  spacing INTEGER NOT NULL DEFAULT 0, max_in_flight INTEGER NOT NULL DEFAULT 0,   -- what this run asks of the lane
  picks INTEGER NOT NULL DEFAULT 0,
  kept INTEGER NOT NULL DEFAULT 0,   -- in place of ready, of a run that was cancelled
  PRIMARY KEY (run, lane, needs)
) WITHOUT ROWID;
CREATE INDEX run_lanes_due ON run_lanes(run, needs, wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX run_lanes_by_lane ON run_lanes(lane);
CREATE INDEX run_lanes_waiting ON run_lanes(lane, wake_at) WHERE ready > 0;
CREATE INDEX run_lanes_empty ON run_lanes(lane) WHERE ready <= 0 AND wake_at IS NOT NULL;
CREATE INDEX run_lanes_kept ON run_lanes(run) WHERE kept <> 0;

-- The combinations of capabilities that tasks of a run need, by number from 1 on, with how many are ready.
CREATE TABLE run_needs (
  run INTEGER NOT NULL, needs INTEGER NOT NULL, names TEXT NOT NULL, ready INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (run, needs)
) WITHOUT ROWID;

-- Live tasks, and those kept of runs that were cancelled. state: 0 ready, 1 leased, 2 delayed, 3 leased when its run was cancelled.
-- What is looked for over all runs is looked for in each that is open, so that what is only kept costs nobody anything.
CREATE TABLE tasks (
  id INTEGER PRIMARY KEY, state INTEGER NOT NULL, lane INTEGER NOT NULL, run INTEGER NOT NULL,
  band INTEGER NOT NULL, due INTEGER NOT NULL, lease INTEGER NOT NULL DEFAULT 0,
  slot INTEGER NOT NULL DEFAULT 0, returned_lease INTEGER NOT NULL DEFAULT 0,   -- the lease it was last returned under by its own worker
  attempts INTEGER NOT NULL DEFAULT 0, lost INTEGER NOT NULL DEFAULT 0,
  added_at INTEGER NOT NULL, expires_at INTEGER, priority INTEGER NOT NULL, depth INTEGER NOT NULL, parent INTEGER,
  kind TEXT NOT NULL, url TEXT NOT NULL, meta TEXT, history TEXT, request_options TEXT, auto_ack INTEGER NOT NULL DEFAULT 0,
  needs INTEGER NOT NULL DEFAULT 0   -- the number of a combination, see run_needs
);
CREATE INDEX tasks_ready ON tasks(lane, run, needs, band, due) WHERE state = 0;
CREATE INDEX tasks_isolated ON tasks(run, needs, due) WHERE state = 0 AND band = -1;
CREATE INDEX tasks_delayed ON tasks(run, due, lane, needs) WHERE state = 2;   -- what is due is counted without looking at the tasks
CREATE INDEX tasks_leased ON tasks(lease) WHERE state IN (1, 3);
CREATE INDEX tasks_expiring ON tasks(run, expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE leases (
  number INTEGER PRIMARY KEY, worker TEXT NOT NULL, request_id TEXT NOT NULL,
  expires_at INTEGER NOT NULL, open INTEGER NOT NULL, started TEXT   -- NULL: never extended
);

-- Every request a run has ever met, kept when the tasks are gone. A negative task marks a URL
-- that a redirect of that task led to.
CREATE TABLE seen (run INTEGER NOT NULL, digest TEXT NOT NULL, task INTEGER NOT NULL, PRIMARY KEY (run, digest)) WITHOUT ROWID;

-- Named seen-sets, which outlive their runs. A set without a name was cleared: its entries are still to be removed.
-- cursor: how far the pass has come that removes what is remembered no more; swept_at: when the last one ended.
CREATE TABLE seen_sets (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, seen_for INTEGER NOT NULL, created_at INTEGER NOT NULL,
  changed_at INTEGER NOT NULL, entries INTEGER NOT NULL DEFAULT 0, cursor BLOB, swept_at INTEGER NOT NULL
);
CREATE TABLE seen_entries (seen_set INTEGER NOT NULL, digest BLOB NOT NULL, hour INTEGER NOT NULL, PRIMARY KEY (seen_set, digest)) WITHOUT ROWID;

-- Tasks that ended well; and apart from them those that were cancelled one by one, or dropped: the first of either
-- are found without passing over the others.
CREATE TABLE ended (
  id INTEGER PRIMARY KEY, state TEXT NOT NULL, lease INTEGER NOT NULL, returned_lease INTEGER NOT NULL, lane INTEGER NOT NULL, ended_at INTEGER NOT NULL,
  added_at INTEGER NOT NULL, attempts INTEGER NOT NULL, lost INTEGER NOT NULL, priority INTEGER NOT NULL, depth INTEGER NOT NULL,
  parent INTEGER, kind TEXT NOT NULL, url TEXT NOT NULL, cause TEXT NOT NULL,
  first_record INTEGER NOT NULL, records INTEGER NOT NULL, history TEXT
);
CREATE TABLE cancelled (
  id INTEGER PRIMARY KEY, state TEXT NOT NULL, lease INTEGER NOT NULL, returned_lease INTEGER NOT NULL, lane INTEGER NOT NULL, ended_at INTEGER NOT NULL,
  added_at INTEGER NOT NULL, attempts INTEGER NOT NULL, lost INTEGER NOT NULL, priority INTEGER NOT NULL, depth INTEGER NOT NULL,
  parent INTEGER, kind TEXT NOT NULL, url TEXT NOT NULL, cause TEXT NOT NULL,
  first_record INTEGER NOT NULL, records INTEGER NOT NULL, history TEXT
);

CREATE TABLE dead (
  id INTEGER PRIMARY KEY, lease INTEGER NOT NULL, returned_lease INTEGER NOT NULL, lane INTEGER NOT NULL, ended_at INTEGER NOT NULL,
  added_at INTEGER NOT NULL, expires_at INTEGER, attempts INTEGER NOT NULL, lost INTEGER NOT NULL, priority INTEGER NOT NULL,
  depth INTEGER NOT NULL, parent INTEGER, kind TEXT NOT NULL, url TEXT NOT NULL, meta TEXT,
  request_options TEXT, cause TEXT NOT NULL, history TEXT, evidence TEXT, run INTEGER NOT NULL,
  auto_ack INTEGER NOT NULL DEFAULT 0, needs INTEGER NOT NULL DEFAULT 0
);
-- How many dead letters there are of a lane and a cause is counted as they come and go, the rest is found by the index.
CREATE INDEX dead_by_group ON dead(run, lane, cause, ended_at);
CREATE INDEX dead_by_age ON dead(run, ended_at);
-- How often URLs failed for good, over runs; by the digest of the URL. number: of the last of these failures.
CREATE TABLE failing (
  key BLOB PRIMARY KEY, number INTEGER NOT NULL, count INTEGER NOT NULL, last_at INTEGER NOT NULL, causes TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX failing_oldest ON failing(number);
CREATE TABLE discarded (id INTEGER PRIMARY KEY);   -- dead letters that were removed when their retention was over
CREATE TABLE dead_groups (
  run INTEGER NOT NULL, lane INTEGER NOT NULL, cause TEXT NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (run, lane, cause)
) WITHOUT ROWID;
CREATE INDEX dead_groups_largest ON dead_groups(run, count DESC, lane, cause);
-- A built-in kind ("page:…") takes up none of the pages of its run.
CREATE TRIGGER aside_done AFTER INSERT ON ended WHEN new.kind >= 'page:' AND new.kind < 'page;' BEGIN
  UPDATE runs SET aside = aside + 1 WHERE id = new.id >> 32;
END;
CREATE TRIGGER aside_dead AFTER INSERT ON dead WHEN new.kind >= 'page:' AND new.kind < 'page;' BEGIN
  UPDATE runs SET aside = aside + 1 WHERE id = new.run;
END;
CREATE TRIGGER aside_deleted AFTER DELETE ON dead WHEN old.kind >= 'page:' AND old.kind < 'page;' BEGIN
  UPDATE runs SET aside = aside - 1 WHERE id = old.run;
END;
CREATE TRIGGER dead_inserted AFTER INSERT ON dead BEGIN
  INSERT INTO dead_groups SELECT new.run, new.lane, new.cause, 0
    WHERE NOT EXISTS (SELECT 1 FROM dead_groups WHERE run = new.run AND lane = new.lane AND cause = new.cause);
  UPDATE dead_groups SET count = count + 1 WHERE run = new.run AND lane = new.lane AND cause = new.cause;
END;
CREATE TRIGGER dead_deleted AFTER DELETE ON dead BEGIN
  UPDATE dead_groups SET count = count - 1 WHERE run = old.run AND lane = old.lane AND cause = old.cause;
  DELETE FROM dead_groups WHERE run = old.run AND lane = old.lane AND cause = old.cause AND count <= 0;
END;

-- id is (run << 32) | number, so that a run's records lie together in the order of settling.
CREATE TABLE records (id INTEGER PRIMARY KEY, task INTEGER NOT NULL, data TEXT NOT NULL);

-- What a run remembers of its pages, by the id of the task. Heads are read without bodies, so they come first.
CREATE TABLE page_states (id INTEGER PRIMARY KEY, head BLOB NOT NULL, body BLOB NOT NULL);

-- What outcomes have counted for a run, as a JSON object: all of it changes with every settle.
CREATE TABLE run_counters (run INTEGER PRIMARY KEY, counts TEXT NOT NULL);

-- What settled tasks want done elsewhere, until it is acknowledged. AUTOINCREMENT: no number is given twice.
CREATE TABLE outbox (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL
);
CREATE INDEX outbox_by_kind ON outbox(kind, seq);
CREATE INDEX outbox_by_run ON outbox(run);

CREATE TABLE skips (run INTEGER NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (run, reason)) WITHOUT ROWID;
CREATE TABLE skip_samples (run INTEGER NOT NULL, reason TEXT NOT NULL, url TEXT NOT NULL, PRIMARY KEY (run, reason, url)) WITHOUT ROWID;

CREATE TABLE workers (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, version TEXT NOT NULL,
  started_at INTEGER NOT NULL, seen_at INTEGER NOT NULL, state TEXT NOT NULL, activity TEXT NOT NULL,
  details TEXT NOT NULL DEFAULT '{}', command TEXT NOT NULL DEFAULT '', counters BLOB NOT NULL DEFAULT x''
) WITHOUT ROWID;

-- Documents that workers share. Versions are kept: a run names the one it was started with.
CREATE TABLE documents (
  kind TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, made_at INTEGER NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY (kind, name, version)
) WITHOUT ROWID;
