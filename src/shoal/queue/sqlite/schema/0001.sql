-- The first schema. Times and durations are microseconds. A task id is (run << 32) | number.

CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('last_lease', 0);

-- One row per run with its exact account, so that stats cost one look-up.
CREATE TABLE runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE, scraper TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL,
  created_at INTEGER NOT NULL, changed_at INTEGER NOT NULL, finished_at INTEGER NOT NULL DEFAULT 0,
  weight INTEGER NOT NULL, max_pages INTEGER NOT NULL, spec TEXT NOT NULL,
  next_task INTEGER NOT NULL DEFAULT 1, next_record INTEGER NOT NULL DEFAULT 1,
  asked_at INTEGER NOT NULL DEFAULT 0,   -- when a worker that serves it last asked for work, to the second
  share REAL NOT NULL DEFAULT 0,   -- tasks handed out / weight: the run with the least is next
  leftovers INTEGER NOT NULL DEFAULT 0,   -- 1: cancelled tasks are still to be removed
  seen INTEGER NOT NULL DEFAULT 0, ready INTEGER NOT NULL DEFAULT 0, delayed INTEGER NOT NULL DEFAULT 0,
  leased INTEGER NOT NULL DEFAULT 0, done INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0, records INTEGER NOT NULL DEFAULT 0, retries INTEGER NOT NULL DEFAULT 0,
  lost INTEGER NOT NULL DEFAULT 0, stale INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX runs_by_key ON runs(key);
CREATE INDEX runs_running ON runs(id) WHERE state = 'running';
CREATE INDEX runs_leftovers ON runs(id) WHERE leftovers = 1;

-- One row per host. spacing = max(asked, learned) is kept so that a claim need not compute it.
CREATE TABLE lanes (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
  next_at INTEGER NOT NULL DEFAULT 0,
  asked INTEGER NOT NULL DEFAULT 0, learned INTEGER NOT NULL DEFAULT 0, spacing INTEGER NOT NULL DEFAULT 0,
  max_in_flight INTEGER NOT NULL DEFAULT 0, in_flight INTEGER NOT NULL DEFAULT 0,
  held_until INTEGER NOT NULL DEFAULT 0, parked INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT ''
);

-- Where a run has ready work: claims look here, never at the tasks. wake_at is NULL when the lane
-- has nothing ready for the run or is full, else when it may next be asked.
CREATE TABLE heads (
  run INTEGER NOT NULL, lane INTEGER NOT NULL, ready INTEGER NOT NULL DEFAULT 0, wake_at INTEGER,
  spacing INTEGER NOT NULL, max_in_flight INTEGER NOT NULL,   -- what this run asks of the lane
  picks INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run, lane)
) WITHOUT ROWID;
CREATE INDEX heads_due ON heads(run, wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX heads_by_lane ON heads(lane);

-- Live tasks only. state: 0 ready, 1 leased, 2 delayed, 3 leased when its run was cancelled.
CREATE TABLE tasks (
  id INTEGER PRIMARY KEY, state INTEGER NOT NULL, lane INTEGER NOT NULL, run INTEGER NOT NULL,
  band INTEGER NOT NULL, due INTEGER NOT NULL, lease INTEGER NOT NULL DEFAULT 0,
  slot INTEGER NOT NULL DEFAULT 0, gave_back INTEGER NOT NULL DEFAULT 0,   -- the lease it was last returned under by its own worker
  attempts INTEGER NOT NULL DEFAULT 0, lost INTEGER NOT NULL DEFAULT 0,
  added_at INTEGER NOT NULL, expires_at INTEGER, priority INTEGER NOT NULL, depth INTEGER NOT NULL, parent INTEGER,
  kind TEXT NOT NULL, url TEXT NOT NULL, meta TEXT, history TEXT
);
CREATE INDEX tasks_ready ON tasks(lane, run, band, due) WHERE state = 0;
CREATE INDEX tasks_alone ON tasks(run, due) WHERE state = 0 AND band = -1;
CREATE INDEX tasks_delayed ON tasks(due) WHERE state = 2;
CREATE INDEX tasks_leased ON tasks(lease) WHERE state IN (1, 3);
CREATE INDEX tasks_expiring ON tasks(expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE leases (
  number INTEGER PRIMARY KEY, worker TEXT NOT NULL, request TEXT NOT NULL,
  expires_at INTEGER NOT NULL, open INTEGER NOT NULL, started TEXT   -- NULL: never extended
);

-- Every request a run has ever met, kept when the tasks are gone. A negative task marks an address
-- that a redirect of that task led to.
CREATE TABLE seen (run INTEGER NOT NULL, digest TEXT NOT NULL, task INTEGER NOT NULL, PRIMARY KEY (run, digest)) WITHOUT ROWID;

-- Tasks that ended well, or were cancelled one by one.
CREATE TABLE ended (
  id INTEGER PRIMARY KEY, state TEXT NOT NULL, lease INTEGER NOT NULL, gave_back INTEGER NOT NULL, lane INTEGER NOT NULL, ended_at INTEGER NOT NULL,
  added_at INTEGER NOT NULL, attempts INTEGER NOT NULL, lost INTEGER NOT NULL, priority INTEGER NOT NULL, depth INTEGER NOT NULL,
  parent INTEGER, kind TEXT NOT NULL, url TEXT NOT NULL, cause TEXT NOT NULL,
  first_record INTEGER NOT NULL, records INTEGER NOT NULL, history TEXT
);

CREATE TABLE dead (
  id INTEGER PRIMARY KEY, lease INTEGER NOT NULL, gave_back INTEGER NOT NULL, lane INTEGER NOT NULL, ended_at INTEGER NOT NULL,
  added_at INTEGER NOT NULL, expires_at INTEGER, attempts INTEGER NOT NULL, lost INTEGER NOT NULL, priority INTEGER NOT NULL,
  depth INTEGER NOT NULL, parent INTEGER, kind TEXT NOT NULL, url TEXT NOT NULL, meta TEXT,
  cause TEXT NOT NULL, history TEXT, evidence TEXT
);

-- id is (run << 32) | number, so that a run's records lie together in the order of settling.
CREATE TABLE records (id INTEGER PRIMARY KEY, task INTEGER NOT NULL, data TEXT NOT NULL);

CREATE TABLE skips (run INTEGER NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (run, reason)) WITHOUT ROWID;
CREATE TABLE skip_samples (run INTEGER NOT NULL, reason TEXT NOT NULL, url TEXT NOT NULL, PRIMARY KEY (run, reason, url)) WITHOUT ROWID;

CREATE TABLE workers (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, version TEXT NOT NULL,
  started_at INTEGER NOT NULL, seen_at INTEGER NOT NULL, state TEXT NOT NULL, doing TEXT NOT NULL
) WITHOUT ROWID;
