-- What people look at: quick however much there is, and at no cost to work that goes well.

-- Tasks that were cancelled one by one, or dropped, in the shape of those that ended well; apart from them,
-- so that the first of either are found without passing over the others.
CREATE TABLE cancelled (
  id INTEGER PRIMARY KEY, state TEXT NOT NULL, lease INTEGER NOT NULL, gave_back INTEGER NOT NULL, lane INTEGER NOT NULL, ended_at INTEGER NOT NULL,
  added_at INTEGER NOT NULL, attempts INTEGER NOT NULL, lost INTEGER NOT NULL, priority INTEGER NOT NULL, depth INTEGER NOT NULL,
  parent INTEGER, kind TEXT NOT NULL, url TEXT NOT NULL, cause TEXT NOT NULL,
  first_record INTEGER NOT NULL, records INTEGER NOT NULL, history TEXT
);
INSERT INTO cancelled SELECT * FROM ended WHERE state = 'cancelled';
DELETE FROM ended WHERE state = 'cancelled';

-- Dead letters by lane and cause: how many is counted as they come and go, the rest is found by the index.
ALTER TABLE dead ADD COLUMN run INTEGER NOT NULL DEFAULT 0;
UPDATE dead SET run = id >> 32;
CREATE INDEX dead_by_group ON dead(run, lane, cause, ended_at);
CREATE TABLE graves (
  run INTEGER NOT NULL, lane INTEGER NOT NULL, cause TEXT NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (run, lane, cause)
) WITHOUT ROWID;
INSERT INTO graves SELECT run, lane, cause, count(*) FROM dead GROUP BY run, lane, cause;
CREATE INDEX graves_largest ON graves(run, count DESC, lane, cause);
CREATE TRIGGER dead_came AFTER INSERT ON dead BEGIN
  INSERT INTO graves SELECT new.run, new.lane, new.cause, 0
    WHERE NOT EXISTS (SELECT 1 FROM graves WHERE run = new.run AND lane = new.lane AND cause = new.cause);
  UPDATE graves SET count = count + 1 WHERE run = new.run AND lane = new.lane AND cause = new.cause;
END;
CREATE TRIGGER dead_went AFTER DELETE ON dead BEGIN
  UPDATE graves SET count = count - 1 WHERE run = old.run AND lane = old.lane AND cause = old.cause;
  DELETE FROM graves WHERE run = old.run AND lane = old.lane AND cause = old.cause AND count <= 0;
END;

-- With these columns, questions about what is due need not look at the tasks themselves.
DROP INDEX tasks_delayed;
CREATE INDEX tasks_delayed ON tasks(due, run, lane) WHERE state = 2;

CREATE INDEX runs_open ON runs(id) WHERE state IN ('running', 'paused');
CREATE INDEX runs_by_scraper ON runs(scraper);

ALTER TABLE workers ADD COLUMN figures BLOB NOT NULL DEFAULT x'';
