-- Goals, findings, attempts. Live tables hold what is live; what ended moves to history.

CREATE TABLE goal_states (
    goal         TEXT   PRIMARY KEY,
    state        TEXT   NOT NULL             -- 'met' (no row), 'unmet' (rows), 'unknown' (it did not finish, or never ran)
                 CHECK (state IN ('met', 'unmet', 'unknown')),
    findings     BIGINT NOT NULL DEFAULT 0,  -- after the last evaluation that finished
    evaluated_at BIGINT,                     -- when the last evaluation began
    finished_at  BIGINT,                     -- when the last one that finished began
    took_ms      BIGINT,                     -- how long the last evaluation took
    error        TEXT,                       -- why it is unknown
    failures     BIGINT NOT NULL DEFAULT 0,  -- in a row
    file_error   TEXT,                       -- why the file on disk is not what runs
    digest       TEXT                        -- of the text that runs
);

CREATE TABLE evaluations (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    goal     TEXT   NOT NULL,
    began_at BIGINT NOT NULL,  -- by the database's clock: what its rows are true of
    took_ms  BIGINT NOT NULL,  -- to its last row
    findings BIGINT NOT NULL,  -- returned by it
    opened   BIGINT NOT NULL,  -- new subjects
    closed   BIGINT NOT NULL,  -- subjects that it no longer returned
    changed  BIGINT NOT NULL,  -- subjects returned with another priority, reason or evidence
    error    TEXT              -- it did not finish, and changed nothing
);
CREATE INDEX evaluations_by_goal ON evaluations (goal, id);

-- Open findings.
CREATE TABLE findings (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    goal              TEXT    NOT NULL,
    subject           TEXT    NOT NULL,            -- 'repository:12', 'replica:12:3', 'fileserver:3', 'key:…'
    repository_id     BIGINT,
    fileserver_id     BIGINT,
    repair            TEXT,                        -- NULL: only listed
    lane              BIGINT  NOT NULL,            -- −1 last copies, 0 common, else a fileserver
    priority          INTEGER NOT NULL,            -- 0 to 999, higher is sooner
    reason            TEXT,                        -- for people
    hints             TEXT   NOT NULL,            -- source_id, destination_id, bytes, as the goal gave them
    evidence          TEXT   NOT NULL,            -- every other column that the goal gave
    opened_at         BIGINT  NOT NULL,            -- when it was first returned
    opened_evaluation BIGINT  NOT NULL,            -- by which evaluation
    state             TEXT    NOT NULL             -- 'waiting' (backs off, or awaits an evaluation, or is only listed),
                                                   -- 'ready', 'running' (has an attempt), 'held' (brake, pause), 'stuck' (needs a person)
                      CHECK (state IN ('waiting', 'ready', 'running', 'held', 'stuck')),
    deferral          TEXT,                       -- why it waits
    tries             INTEGER NOT NULL DEFAULT 0,  -- attempts that failed
    ineffective       INTEGER NOT NULL DEFAULT 0,  -- attempts that succeeded and after which it was returned again
    repaired_at       BIGINT,                      -- a succeeded attempt's end, until an evaluation judged it
    next_at           BIGINT  NOT NULL,            -- before this nothing starts
    UNIQUE (goal, subject)
);
CREATE INDEX findings_ready ON findings (lane, priority DESC, id) WHERE state = 'ready';
-- One slot in eight goes to the oldest of a lane.
CREATE INDEX findings_oldest ON findings (lane, id) WHERE state = 'ready';
-- Those that the next evaluation judges: few, among many that never were repaired.
CREATE INDEX findings_repaired ON findings (goal, ineffective) WHERE repaired_at IS NOT NULL;
CREATE INDEX findings_due ON findings (next_at) WHERE state = 'waiting' AND repair IS NOT NULL AND repaired_at IS NULL;
CREATE INDEX findings_by_repository ON findings (repository_id);
CREATE INDEX findings_by_fileserver ON findings (fileserver_id);

-- Findings that an evaluation no longer returned.
CREATE TABLE finding_history (
    id            BIGINT  PRIMARY KEY,  -- the finding's
    goal          TEXT    NOT NULL,
    subject       TEXT    NOT NULL,
    repository_id BIGINT,
    fileserver_id BIGINT,
    repair        TEXT,
    priority      INTEGER NOT NULL,
    reason        TEXT,
    evidence      TEXT   NOT NULL,
    opened_at     BIGINT  NOT NULL,
    closed_at     BIGINT  NOT NULL,
    tries         INTEGER NOT NULL,
    ineffective   INTEGER NOT NULL
);
CREATE INDEX finding_history_by_close ON finding_history (closed_at);
CREATE INDEX finding_history_by_repository ON finding_history (repository_id, closed_at);

-- Attempts that are queued or running: few, as limits have it.
CREATE TABLE attempts (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    finding_id     BIGINT  NOT NULL UNIQUE,
    goal           TEXT    NOT NULL,
    subject        TEXT    NOT NULL,
    repository_id  BIGINT,                     -- one attempt at a time each
    repair         TEXT    NOT NULL,
    step           TEXT    NOT NULL,           -- 'resync', 'replicate', 'verify'; a worker leaves those it does not know
    number         INTEGER NOT NULL,           -- which try of this finding, from 1
    state          TEXT    NOT NULL CHECK (state IN ('queued', 'running')),  -- ended ones are in attempt_history
    lane           BIGINT  NOT NULL,
    priority       INTEGER NOT NULL,
    plan           TEXT   NOT NULL,           -- without open choices
    source_id      BIGINT,                     -- of the plan, for the limits
    destination_id BIGINT,                     -- likewise
    bytes          BIGINT  NOT NULL DEFAULT 0, -- expected to move
    epoch          BIGINT  NOT NULL DEFAULT 0, -- the repair epoch of its claim
    worker         TEXT,                       -- who has it: an id that is new at every start
    lease_until    BIGINT,                     -- by the database's clock
    queued_at      BIGINT  NOT NULL,           -- when it was admitted
    started_at     BIGINT,                     -- when it was claimed
    progress       TEXT,                       -- what its worker last said, for people
    CHECK (state = 'queued' OR (worker IS NOT NULL AND lease_until IS NOT NULL))
);
CREATE UNIQUE INDEX attempts_one_per_repository ON attempts (repository_id) WHERE repository_id IS NOT NULL;
CREATE INDEX attempts_queued ON attempts (priority DESC, id) WHERE state = 'queued';
CREATE INDEX attempts_by_lease ON attempts (lease_until) WHERE state = 'running';

-- Attempts that ended.
CREATE TABLE attempt_history (
    id             BIGINT  PRIMARY KEY,  -- the attempt's
    finding_id     BIGINT  NOT NULL,
    goal           TEXT    NOT NULL,
    subject        TEXT    NOT NULL,
    repository_id  BIGINT,
    repair         TEXT    NOT NULL,
    step           TEXT    NOT NULL,
    number         INTEGER NOT NULL,
    outcome        TEXT    NOT NULL      -- 'succeeded', 'failed', 'cancelled' (by a person, or its destination went silent),
                                         -- 'lost' (its lease ran out), 'stale' (there was nothing to do any more)
                   CHECK (outcome IN ('succeeded', 'failed', 'cancelled', 'lost', 'stale')),
    plan           TEXT   NOT NULL,
    source_id      BIGINT,
    destination_id BIGINT,
    bytes          BIGINT  NOT NULL,     -- moved
    epoch          BIGINT  NOT NULL,
    worker         TEXT,
    queued_at      BIGINT  NOT NULL,
    started_at     BIGINT,
    finished_at    BIGINT  NOT NULL,
    message        TEXT    NOT NULL      -- what was seen, for people
);
CREATE INDEX attempts_started ON attempts (queued_at);
CREATE INDEX attempt_history_by_queueing ON attempt_history (queued_at);
CREATE INDEX attempt_history_by_end ON attempt_history (finished_at);
CREATE INDEX attempt_history_by_finding ON attempt_history (finding_id);
CREATE INDEX attempt_history_by_repository ON attempt_history (repository_id, finished_at);
