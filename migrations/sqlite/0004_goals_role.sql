-- Whom goals are asked as, and what each goal last looked at.

-- Of use on PostgreSQL alone: an SQLite file knows no roles. Goals cannot read this table.
CREATE TABLE goals_role (
    id         BIGINT PRIMARY KEY CHECK (id = 1),  -- one row; none: goals are asked as the main role, read-only
    role       TEXT   NOT NULL,                    -- its name: 'trued_goals_' and the database's number, as roles are the server's
    password   TEXT,                               -- NULL: the configuration has its URL
    checked_at BIGINT NOT NULL,                    -- when it was last looked at what the role can do
    remains    TEXT   NOT NULL                     -- what it can do beyond reading, in sentences (JSON)
);

-- NULL: it says nothing of a population. Once above 0, an evaluation that looked at nothing is no evaluation.
ALTER TABLE goal_states ADD COLUMN population BIGINT;
