-- Kept answers. Bodies are kept once however often they came, packed in blocks with others of their time;
-- what else is known of an answer (its head) is packed in blocks of its run.
CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE
);
CREATE TABLE block (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice: readers remember what a block held
    bodies INTEGER NOT NULL,               -- 1 for bodies, 0 for heads
    codec INTEGER NOT NULL,
    size INTEGER NOT NULL,                 -- unpacked
    live INTEGER NOT NULL,                 -- how much of that is still used
    crc INTEGER NOT NULL,                  -- of data
    data BLOB NOT NULL
);
CREATE INDEX block_thin ON block (id) WHERE bodies = 1 AND live * 2 < size;
CREATE TABLE body (
    id INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    block INTEGER NOT NULL,
    start INTEGER NOT NULL,
    size INTEGER NOT NULL,
    uses INTEGER NOT NULL                  -- by how many answers
);
CREATE INDEX body_of_block ON body (block);
CREATE TABLE answer (
    id INTEGER PRIMARY KEY,                -- run << 40 | number: the answers of a run lie together, in order
    digest BLOB NOT NULL,
    run INTEGER NOT NULL,
    kept_at INTEGER NOT NULL,
    body INTEGER NOT NULL,
    block INTEGER NOT NULL,                -- of its head
    start INTEGER NOT NULL,
    size INTEGER NOT NULL,
    UNIQUE (digest, run)
);
