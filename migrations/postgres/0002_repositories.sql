-- Repositories, their replicas, and what was seen of them on disks.

CREATE TABLE repositories (
    id                BIGINT PRIMARY KEY,              -- from counters.repository_id; never given again
    name              TEXT    NOT NULL UNIQUE,         -- what people use; never a path on a disk
    kind              TEXT    NOT NULL DEFAULT 'repository',  -- 'repository'; others are for later versions
    object_format     TEXT    NOT NULL DEFAULT 'sha1' CHECK (object_format IN ('sha1', 'sha256')),  -- of its objects' names
    bytes             BIGINT  NOT NULL DEFAULT 0,      -- of one copy
    wanted            BIGINT  NOT NULL DEFAULT 3 CHECK (wanted BETWEEN 1 AND 64),  -- countable replicas it ought to have
    seats             BIGINT  NOT NULL DEFAULT 3 CHECK (seats BETWEEN 1 AND 64),   -- replicas that share in a push's verdict; quorum = seats / 2 + 1
    replica_count     BIGINT  NOT NULL DEFAULT 0,      -- rows in replicas: kept by triggers on placement changes
    rack_count        BIGINT  NOT NULL DEFAULT 0,      -- distinct racks of them: kept likewise
    version           BIGINT  NOT NULL DEFAULT 0,      -- counts the pushes that stand
    checksum          BYTEA,                           -- the definitive one, 32 bytes
    checksum_key      BIGINT,                          -- id of the key it was taken under
    push_epoch        BIGINT  NOT NULL DEFAULT 0,      -- highest given to a push
    repair_epoch      BIGINT  NOT NULL DEFAULT 0,      -- highest given to a repair
    write_lock_until  BIGINT,                          -- until then pushes are refused
    write_lock_reason TEXT,                            -- why, for the pusher
    created_at        BIGINT  NOT NULL,                -- when it was made here
    removed_at        BIGINT,                          -- NULL: it is there
    -- Booleans for the partial indexes: planners keep no statistics of comparisons.
    miscounted BOOLEAN GENERATED ALWAYS AS (replica_count <> wanted) STORED,
    crowded    BOOLEAN GENERATED ALWAYS AS (rack_count < replica_count AND rack_count < wanted) STORED,
    CHECK ((checksum IS NULL) = (checksum_key IS NULL))
) WITH (fillfactor = 90);
CREATE INDEX repositories_miscounted ON repositories (id) WHERE miscounted;
CREATE INDEX repositories_crowded ON repositories (id) WHERE crowded;

-- Repositories that are gone: an untracked copy of one may go, too.
CREATE TABLE tombstones (
    repository_id BIGINT PRIMARY KEY,  -- for ever
    name          TEXT   NOT NULL,     -- the last it had
    removed_at    BIGINT NOT NULL      -- when its last copy went
);

-- An import or a creation under way: the id and the fileservers are chosen, the copies are being made.
CREATE TABLE imports (
    id             BIGINT PRIMARY KEY,     -- the repository's future id
    name           TEXT   NOT NULL UNIQUE, -- its future name
    object_format  TEXT   NOT NULL CHECK (object_format IN ('sha1', 'sha256')),
    wanted         BIGINT NOT NULL CHECK (wanted BETWEEN 1 AND 64),  -- copies
    bytes          BIGINT NOT NULL,        -- as the client estimates
    fileserver_ids JSONB  NOT NULL,        -- chosen by placement
    created_at     BIGINT NOT NULL         -- when it was planned
);

-- One copy of one repository on one fileserver.
CREATE TABLE replicas (
    repository_id     BIGINT  NOT NULL REFERENCES repositories (id),
    fileserver_id     BIGINT  NOT NULL REFERENCES fileservers (id),
    state             TEXT    NOT NULL                 -- 'creating' (being made), 'live', 'leaving' (reads, votes, counts no more), 'removing'
                      CHECK (state IN ('creating', 'live', 'leaving', 'removing')),
    version           BIGINT,                          -- the one that it was last known to have
    checksum          BYTEA,                           -- NULL: not known, or known to be damaged
    checksum_key      BIGINT,                          -- id of the key it was taken under
    in_sync           BOOLEAN NOT NULL DEFAULT FALSE,  -- checksum is the definitive one; set by the statement that writes it
    out_of_sync_since BIGINT,                          -- NULL while in sync, and before a copy was ever whole
    bytes             BIGINT  NOT NULL DEFAULT 0,      -- on disk
    verified_at       BIGINT,                          -- last compared with the disk
    scrubbed_at       BIGINT,                          -- last full object check
    packs             BIGINT  NOT NULL DEFAULT 0,      -- as last counted
    loose             BIGINT  NOT NULL DEFAULT 0,      -- loose objects, as last counted
    state_since       BIGINT  NOT NULL,                -- since when the state is what it is
    CHECK ((checksum IS NULL) = (checksum_key IS NULL)),
    PRIMARY KEY (repository_id, fileserver_id)
) WITH (fillfactor = 90);
CREATE INDEX replicas_by_fileserver ON replicas (fileserver_id, repository_id);
CREATE INDEX replicas_not_in_sync ON replicas (repository_id, fileserver_id) WHERE NOT in_sync;
CREATE INDEX replicas_not_live ON replicas (repository_id, fileserver_id) WHERE state <> 'live';
CREATE INDEX replicas_by_verified ON replicas (verified_at);
-- Without this the planner believes in 65 replicas a repository and plans for millions.
ALTER TABLE replicas ALTER COLUMN repository_id SET (n_distinct = -0.33);

-- Differences between disks and SQL; nothing is kept of what agrees.
CREATE TABLE inventory (
    repository_id BIGINT NOT NULL,
    fileserver_id BIGINT NOT NULL REFERENCES fileservers (id),
    found         TEXT   NOT NULL   -- 'missing', 'changed' (not by the agent's doing), 'untracked' (no row)
                  CHECK (found IN ('missing', 'changed', 'untracked')),
    generation    BIGINT NOT NULL,  -- of the agent's inventory: a verification of this or a later one answers the flag
    since         BIGINT NOT NULL,  -- when it was first seen so
    PRIMARY KEY (repository_id, fileserver_id)
);

-- Copies that were set aside on disks.
CREATE TABLE quarantine (
    repository_id BIGINT NOT NULL,
    fileserver_id BIGINT NOT NULL REFERENCES fileservers (id),
    path          TEXT   NOT NULL,  -- below the agent's root
    since         BIGINT NOT NULL,  -- when it was set aside
    reason        TEXT   NOT NULL,  -- why
    bytes         BIGINT NOT NULL,  -- on disk
    PRIMARY KEY (repository_id, fileserver_id, path)
);

-- Pushes, from their opening to their outcome.
CREATE TABLE pushes (
    id            BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    repository_id BIGINT NOT NULL REFERENCES repositories (id),
    state         TEXT   NOT NULL CHECK (state IN ('open', 'committed', 'aborted')),  -- its outcome, or that it has none yet
    base_version  BIGINT NOT NULL,  -- the version it builds on
    epoch         BIGINT NOT NULL,  -- its push epoch; raised by whoever settles it
    router        TEXT   NOT NULL,  -- who runs it
    commands      JSONB  NOT NULL,  -- references with their old and new values
    new_checksum  BYTEA,            -- what voters must have after it
    voters        JSONB  NOT NULL,  -- fileservers whose votes count
    opened_at     BIGINT NOT NULL,
    lease_until   BIGINT NOT NULL,  -- past it anybody may settle it
    closed_at     BIGINT            -- NULL while open
);
CREATE UNIQUE INDEX pushes_one_open ON pushes (repository_id) WHERE state = 'open';

-- Counts, kept on placement changes alone: a push touches none of this. Statement by statement,
-- so that loading many rows costs one update a repository.
CREATE FUNCTION replicas_recount() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE repositories p
       SET replica_count = c.replicas, rack_count = c.racks
      FROM (SELECT t.repository_id, count(r.fileserver_id) AS replicas, count(DISTINCT f.rack_id) AS racks
              FROM (SELECT DISTINCT repository_id FROM touched) t
              LEFT JOIN replicas r ON r.repository_id = t.repository_id
              LEFT JOIN fileservers f ON f.id = r.fileserver_id
             GROUP BY t.repository_id) c
     WHERE p.id = c.repository_id AND (p.replica_count <> c.replicas OR p.rack_count <> c.racks);
    UPDATE counters SET value = value + (CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END) * (SELECT count(*) FROM touched)
     WHERE name = 'replicas';
    RETURN NULL;
END $$;
CREATE TRIGGER replicas_inserted AFTER INSERT ON replicas
    REFERENCING NEW TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION replicas_recount();
CREATE TRIGGER replicas_deleted AFTER DELETE ON replicas
    REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION replicas_recount();

CREATE FUNCTION rows_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE counters SET value = value + (CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END) * (SELECT count(*) FROM touched)
     WHERE name = TG_TABLE_NAME;
    RETURN NULL;
END $$;
CREATE TRIGGER repositories_inserted AFTER INSERT ON repositories
    REFERENCING NEW TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION rows_counted();
CREATE TRIGGER repositories_deleted AFTER DELETE ON repositories
    REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION rows_counted();
CREATE TRIGGER fileservers_inserted AFTER INSERT ON fileservers
    REFERENCING NEW TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION rows_counted();
CREATE TRIGGER fileservers_deleted AFTER DELETE ON fileservers
    REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION rows_counted();

CREATE VIEW countable_replicas AS
  SELECT r.repository_id, r.fileserver_id, f.rack_id, r.in_sync, r.out_of_sync_since
    FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id
   WHERE f.counts AND r.state = 'live';

-- A cheap superset of every placement exception; never scans the fleet.
CREATE VIEW suspects AS
  SELECT id AS repository_id FROM repositories WHERE miscounted
  UNION SELECT id FROM repositories WHERE crowded
  UNION SELECT repository_id FROM replicas WHERE NOT in_sync
  UNION SELECT repository_id FROM replicas WHERE state <> 'live'
  UNION SELECT r.repository_id FROM fileservers f JOIN replicas r ON r.fileserver_id = f.id
         WHERE NOT f.counts OR f.health <> 'online';

-- The view, kept as a table so that the planner sees its size.
CREATE TABLE suspect (
    repository_id BIGINT PRIMARY KEY
);
