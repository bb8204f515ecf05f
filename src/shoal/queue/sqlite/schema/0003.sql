-- What people set for lanes, what workers tell of themselves, and records that have gone to a store of their own.

-- Below 0: nobody set it. spacing and max_in_flight are what is in force: these, or else the slowest of the others.
ALTER TABLE lanes ADD COLUMN rule INTEGER NOT NULL DEFAULT -1;
ALTER TABLE lanes ADD COLUMN most INTEGER NOT NULL DEFAULT -1;

ALTER TABLE runs ADD COLUMN trimmed INTEGER NOT NULL DEFAULT 0;
-- 1: of some identities only the beginning is known; they came from a queue that keeps no more.
ALTER TABLE runs ADD COLUMN short INTEGER NOT NULL DEFAULT 0;

ALTER TABLE workers ADD COLUMN about TEXT NOT NULL DEFAULT '{}';
ALTER TABLE workers ADD COLUMN asked TEXT NOT NULL DEFAULT '';
