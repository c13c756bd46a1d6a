-- The fleet, its racks, fileservers and parts. Times: milliseconds since 1970, UTC. Sizes: bytes.

-- One row: now, by the database's own clock. Leases use no other.
CREATE VIEW clock AS SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now;

CREATE TABLE fleet (
    id              BIGINT PRIMARY KEY CHECK (id = 1),  -- one row
    fleet_id        TEXT   NOT NULL,                    -- names the fleet in grants and on agents' disks
    checksum_key_id BIGINT NOT NULL,                    -- names the key below, and the format of checksums
    checksum_key    BLOB  NOT NULL,                    -- 32 secret bytes
    created_at      BIGINT NOT NULL
);

-- Small numbers that only their owners change: next ids, populations.
CREATE TABLE counters (
    name  TEXT   PRIMARY KEY,   -- 'repository_id': highest id given; 'repositories', 'replicas', 'fileservers': how many
    value BIGINT NOT NULL
);
INSERT INTO counters (name, value) VALUES ('repository_id', 0), ('repositories', 0), ('replicas', 0), ('fileservers', 0);

CREATE TABLE racks (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT   NOT NULL UNIQUE
);

CREATE TABLE fileservers (
    id                   INTEGER PRIMARY KEY AUTOINCREMENT,
    name                 TEXT    NOT NULL UNIQUE,
    rack_id              BIGINT  NOT NULL REFERENCES racks (id),
    url                  TEXT    NOT NULL,                    -- base URL of its agent
    intent               TEXT    NOT NULL DEFAULT 'serve',    -- 'serve', 'quiesce', 'evacuate', 'retire': what people want
    health               TEXT    NOT NULL DEFAULT 'offline',  -- 'online', 'suspect' (one status missed), 'offline' (three missed): what was seen
    health_since         BIGINT  NOT NULL,
    offline_ms           BIGINT  NOT NULL DEFAULT 0,          -- accumulated: flapping does not reset the grace
    counts               BOOLEAN NOT NULL DEFAULT FALSE,      -- its live replicas count: intent serve or quiesce, not offline beyond the grace,
                                                              -- and, once that was so, only after the inventory of its present start was compared
    empty_since          BIGINT,                              -- its root is another than the one that held its replicas
    start_id             TEXT,                                -- the agent's present start
    compared_start_id    TEXT,                                -- the start whose inventory was compared last
    root_id              TEXT,                                -- made when the root was set up
    capacity             BIGINT  NOT NULL DEFAULT 0,
    disk_used            BIGINT  NOT NULL DEFAULT 0,
    disk_free            BIGINT  NOT NULL DEFAULT 0,
    load                 BIGINT  NOT NULL DEFAULT 0,          -- thousandths, over one minute
    processes            BIGINT  NOT NULL DEFAULT 0,          -- git processes
    long_reads           BIGINT  NOT NULL DEFAULT 0,
    weight               BIGINT  NOT NULL DEFAULT 100,        -- hundredths of an ordinary share of new replicas
    agent_version        TEXT,
    git_version          TEXT,
    inventory_generation BIGINT  NOT NULL DEFAULT 0,          -- highest generation compared
    trouble              TEXT,                                -- what the agent's self-test found
    seen_at              BIGINT
);

CREATE TABLE parts (
    id           TEXT   PRIMARY KEY,  -- an agent's is its fileserver's name
    role         TEXT   NOT NULL,     -- 'controller', 'worker', 'router', 'agent'
    name         TEXT   NOT NULL,
    public_key   BLOB  NOT NULL,     -- 32 bytes, Ed25519
    created_at   BIGINT NOT NULL,
    started_at   BIGINT,
    seen_at      BIGINT,
    withdrawn_at BIGINT               -- agents believe it no more
);

CREATE TABLE leases (
    name   TEXT   PRIMARY KEY,  -- 'goal:<name>', 'dispatch', 'observe', 'suspects'
    holder TEXT   NOT NULL,
    until  BIGINT NOT NULL      -- by the database's clock
);

CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      BIGINT NOT NULL,
    who     TEXT   NOT NULL,
    what    TEXT   NOT NULL,  -- 'fileserver.quiesce', 'repo.set-replicas', …
    subject TEXT   NOT NULL,
    reason  TEXT,
    detail  TEXT
);

CREATE TABLE limits (
    name  TEXT   PRIMARY KEY,  -- 'repair.<name>.<limit>', 'fleet.in_flight', …
    value BIGINT NOT NULL,
    who   TEXT   NOT NULL,
    at    BIGINT NOT NULL
);

CREATE TABLE pauses (
    name   TEXT   PRIMARY KEY,  -- 'goal:<name>', 'repair:<name>', 'all'
    who    TEXT   NOT NULL,
    reason TEXT   NOT NULL,
    until  BIGINT,
    at     BIGINT NOT NULL
);

CREATE TABLE brakes (
    name     TEXT   PRIMARY KEY,  -- 'start', 'blind', 'rack:<name>', 'offline', 'goal:<name>', 'removals'
    since    BIGINT NOT NULL,
    reason   TEXT   NOT NULL,
    clear    BIGINT NOT NULL DEFAULT 0,  -- evaluations in a row without its cause
    approved BIGINT                      -- released by a person until its cause is gone
);

CREATE TABLE observations (
    observer      TEXT   NOT NULL,
    rack_id       BIGINT NOT NULL,
    fileserver_id BIGINT NOT NULL REFERENCES fileservers (id),
    verdict       TEXT   NOT NULL,  -- 'online', 'offline'
    at            BIGINT NOT NULL,
    PRIMARY KEY (observer, fileserver_id)
);
