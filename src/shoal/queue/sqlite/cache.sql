-- The response cache, in a file of its own. Entries go in the order of seq, which is also that of their age.
CREATE TABLE entries (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE, host TEXT NOT NULL, url TEXT NOT NULL,
  stored_at INTEGER NOT NULL, fresh_for REAL NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE INDEX entries_by_host ON entries (host, seq);
CREATE TABLE totals (entries INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO totals VALUES (0, 0);
