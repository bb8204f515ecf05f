-- A run whose records are here, with how far they are. seq and rows grow in the commit that brings them.
CREATE TABLE result_runs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  home text NOT NULL,     -- the queue in which the run began; begins with # for what was stored by hand
  name text NOT NULL,
  type text NOT NULL,     -- the type of its tasks, or its scraper
  number bigint NOT NULL, -- the run's number in its queue, which the ids of its tasks begin with
  seq bigint NOT NULL DEFAULT 0,
  rows bigint NOT NULL DEFAULT 0,     -- taken from the queue, those left out included
  skipped bigint NOT NULL DEFAULT 0,  -- of these, so many were left out, since they were here already
  shift bigint NOT NULL DEFAULT 0,    -- a number here is above that of the queue by this: more when the queue was set back
  base bigint NOT NULL DEFAULT 0,     -- the last number here before that
  UNIQUE (home, name, type)
);
CREATE INDEX result_runs_type ON result_runs (type);
CREATE INDEX result_runs_number ON result_runs (number);

-- json and not jsonb: a record comes back as it went in, \u0000 and the order of its keys included.
CREATE TABLE result_lines (
  run bigint NOT NULL,
  seq bigint NOT NULL,
  task bigint NOT NULL,   -- its number within the run
  stored_at timestamptz NOT NULL DEFAULT now(),
  data json NOT NULL,
  PRIMARY KEY (run, seq)
);
CREATE INDEX result_lines_task ON result_lines (run, task);

-- For people: one line per record.
CREATE VIEW results AS
  SELECT r.name AS run, r.type, (r.number << 32) | l.task AS task, l.seq, l.stored_at, l.data
  FROM result_lines l JOIN result_runs r ON r.id = l.run;
