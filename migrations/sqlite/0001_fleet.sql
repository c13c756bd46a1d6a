-- The fleet, its racks, fileservers and parts. Times: milliseconds since 1970, UTC. Sizes: bytes.

-- One row: now, by the database's own clock. Leases use no other.
CREATE VIEW clock AS SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now;

CREATE TABLE fleet (
    id              BIGINT PRIMARY KEY CHECK (id = 1),  -- one row
    fleet_id        TEXT   NOT NULL,                    -- names the fleet in grants and on agents' disks
    checksum_key_id BIGINT NOT NULL,                    -- names the key below, and the format of checksums
    checksum_key    BLOB  NOT NULL,                    -- 32 secret bytes
    created_at      BIGINT NOT NULL                     -- when the fleet was made
);

-- Small numbers that only their owners change: next ids, populations.
CREATE TABLE counters (
    name  TEXT   PRIMARY KEY,   -- 'repository_id': highest id given; 'repositories', 'replicas', 'fileservers': how many
    value BIGINT NOT NULL
);
INSERT INTO counters (name, value) VALUES ('repository_id', 0), ('repositories', 0), ('replicas', 0), ('fileservers', 0);

CREATE TABLE racks (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT   NOT NULL UNIQUE  -- the unit that fails together
);

CREATE TABLE fileservers (
    id                   INTEGER PRIMARY KEY AUTOINCREMENT,
    name                 TEXT    NOT NULL UNIQUE,
    rack_id              BIGINT  NOT NULL REFERENCES racks (id),
    url                  TEXT    NOT NULL,                    -- base URL of its agent, without a slash at the end
    intent               TEXT    NOT NULL DEFAULT 'serve'     -- what people want: 'serve', 'quiesce' (nothing new), 'evacuate' (copies go), 'retire'
                         CHECK (intent IN ('serve', 'quiesce', 'evacuate', 'retire')),
    health               TEXT    NOT NULL DEFAULT 'offline'   -- what was seen: 'online', 'suspect' (one status missed), 'offline' (three missed)
                         CHECK (health IN ('online', 'suspect', 'offline')),
    health_since         BIGINT  NOT NULL,                    -- since when it is that
    offline_ms           BIGINT  NOT NULL DEFAULT 0,          -- accumulated: flapping does not reset the grace
    counts               BOOLEAN NOT NULL DEFAULT FALSE,      -- its live replicas count: intent serve or quiesce, not offline beyond the grace,
                                                              -- and, once that was so, only after the inventory of its present start was compared
    empty_since          BIGINT,                              -- its root is another than the one that held its replicas
    start_id             TEXT,                                -- the agent's present start
    compared_start_id    TEXT,                                -- the start whose inventory was compared last
    root_id              TEXT,                                -- the root that holds its replicas, by the id made when it was set up
    seen_root_id         TEXT,                                -- the root that the last status spoke of; adopted when the inventory was compared
    capacity             BIGINT  NOT NULL DEFAULT 0,          -- bytes that the agent may use; 0 before its first status
    disk_used            BIGINT  NOT NULL DEFAULT 0,          -- bytes of it used
    disk_free            BIGINT  NOT NULL DEFAULT 0,          -- bytes that new copies may still take
    load                 BIGINT  NOT NULL DEFAULT 0,          -- thousandths, over one minute
    processes            BIGINT  NOT NULL DEFAULT 0,          -- git processes that run there
    long_reads           BIGINT  NOT NULL DEFAULT 0,          -- reads that have run for over a minute
    weight               BIGINT  NOT NULL DEFAULT 100 CHECK (weight >= 0),  -- hundredths of an ordinary share of new replicas
    agent_version        TEXT,                                -- as it said
    root                 TEXT,                                -- where its root is on its machine
    git_version          TEXT,                                -- of the git that it runs
    inventory_generation BIGINT  NOT NULL DEFAULT 0,          -- highest generation compared, of the start compared
    trouble              TEXT,                                -- what the agent's self-test found; NULL: nothing
    seen_at              BIGINT                               -- when its last status arrived
);

CREATE TABLE parts (
    id           TEXT   PRIMARY KEY,  -- an agent's is its fileserver's name
    role         TEXT   NOT NULL CHECK (role IN ('controller', 'worker', 'router', 'agent')),  -- what it may ask of agents
    name         TEXT   NOT NULL,     -- for people
    public_key   BLOB  NOT NULL,     -- 32 bytes, Ed25519
    created_at   BIGINT NOT NULL,     -- when it was added
    started_at   BIGINT,              -- its present start
    seen_at      BIGINT,              -- when it last said that it is there
    withdrawn_at BIGINT               -- agents believe it no more
);

CREATE TABLE leases (
    name   TEXT   PRIMARY KEY,  -- 'goal:<name>', 'dispatch', 'observe', 'suspects'
    holder TEXT   NOT NULL,     -- a process, by an id that is new at every start
    until  BIGINT NOT NULL      -- by the database's clock
);

CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      BIGINT NOT NULL,  -- when
    who     TEXT   NOT NULL,  -- a person's or a token's name
    what    TEXT   NOT NULL,  -- 'fileserver.quiesce', 'repo.set-replicas', …
    subject TEXT   NOT NULL,  -- the name of what was changed
    reason  TEXT,             -- in that person's words
    detail  TEXT              -- old and new values
);

CREATE TABLE limits (
    name  TEXT   PRIMARY KEY,  -- 'repair.<name>.<limit>', 'fleet.in_flight', …
    value BIGINT NOT NULL,
    who   TEXT   NOT NULL,      -- who set it
    at    BIGINT NOT NULL       -- when
);

CREATE TABLE pauses (
    name   TEXT   PRIMARY KEY,  -- 'goal:<name>', 'repair:<name>', 'all'
    who    TEXT   NOT NULL,     -- who paused it
    reason TEXT   NOT NULL,     -- why
    until  BIGINT,              -- NULL: until a person ends it
    at     BIGINT NOT NULL      -- since when
);

CREATE TABLE brakes (
    name     TEXT   PRIMARY KEY,  -- 'start', 'blind', 'rack:<name>', 'offline', 'goal:<name>', 'removals'
    since    BIGINT NOT NULL,            -- when it began to hold
    reason   TEXT   NOT NULL,            -- what it saw
    clear    BIGINT NOT NULL DEFAULT 0,  -- evaluations in a row without its cause
    approved BIGINT                      -- released by a person until its cause is gone
);

CREATE TABLE observations (
    observer      TEXT   NOT NULL,  -- the part that looked
    rack_id       BIGINT NOT NULL,  -- where it stands
    fileserver_id BIGINT NOT NULL REFERENCES fileservers (id),  -- what it looked at
    verdict       TEXT   NOT NULL CHECK (verdict IN ('online', 'offline')),  -- what it saw
    at            BIGINT NOT NULL,  -- when
    PRIMARY KEY (observer, fileserver_id)
);
