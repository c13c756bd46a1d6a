-- Whom goals are asked as, and what each goal last looked at.

-- The role with SELECT on published tables alone: made and mended by `trued migrate`. Goals cannot read this table.
CREATE TABLE goals_role (
    id         BIGINT PRIMARY KEY CHECK (id = 1),  -- one row; none: goals are asked as the main role, read-only
    role       TEXT   NOT NULL,                    -- its name: 'trued_goals_' and the database's number, as roles are the server's
    password   TEXT,                               -- NULL: the configuration has its URL
    checked_at BIGINT NOT NULL,                    -- when it was last looked at what the role can do
    remains    JSONB  NOT NULL                     -- what it can do beyond reading, in sentences
);

-- NULL: it says nothing of a population. Once above 0, an evaluation that looked at nothing is no evaluation.
ALTER TABLE goal_states ADD COLUMN population BIGINT;
