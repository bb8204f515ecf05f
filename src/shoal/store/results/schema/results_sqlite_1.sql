-- A run whose records are here, with how far they are. seq and rows grow in the commit that brings them.
CREATE TABLE result_runs (
  id INTEGER PRIMARY KEY,
  home TEXT NOT NULL,     -- the queue in which the run began; begins with # for what was stored by hand
  name TEXT NOT NULL,
  type TEXT NOT NULL,     -- the type of its tasks, or its scraper
  number INTEGER NOT NULL, -- the run's number in its queue, which the ids of its tasks begin with
  seq INTEGER NOT NULL DEFAULT 0,
  rows INTEGER NOT NULL DEFAULT 0,     -- taken from the queue, those left out included
  skipped INTEGER NOT NULL DEFAULT 0,  -- of these, so many were left out, since they were here already
  shift INTEGER NOT NULL DEFAULT 0,    -- a number here is above that of the queue by this: more when the queue was set back
  base INTEGER NOT NULL DEFAULT 0,     -- the last number here before that
  UNIQUE (home, name, type)
);
CREATE INDEX result_runs_type ON result_runs (type);
CREATE INDEX result_runs_number ON result_runs (number);

CREATE TABLE result_lines (
  run INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  task INTEGER NOT NULL,  -- its number within the run
  stored_at INTEGER NOT NULL,
  data TEXT NOT NULL,
  PRIMARY KEY (run, seq)
);
CREATE INDEX result_lines_task ON result_lines (run, task);

-- For people: one line per record.
CREATE VIEW results AS
  SELECT r.name AS run, r.type, (r.number << 32) | l.task AS task, l.seq,
         strftime('%Y-%m-%dT%H:%M:%fZ', l.stored_at / 1000000.0, 'unixepoch') AS stored_at, l.data
  FROM result_lines l JOIN result_runs r ON r.id = l.run;
