-- How a task is to be asked for, and documents that workers share.

ALTER TABLE tasks ADD COLUMN ask TEXT;
ALTER TABLE dead ADD COLUMN ask TEXT;

-- Versions of a document are kept: a run names the one it was started with.
CREATE TABLE papers (
  kind TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, made_at INTEGER NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY (kind, name, version)
) WITHOUT ROWID;
