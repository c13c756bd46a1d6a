-- What people set over goals at run time, and findings that a pause holds.

CREATE TABLE goal_settings (
    goal   TEXT   NOT NULL,  -- its name
    name   TEXT   NOT NULL,  -- 'mode', 'schedule', 'brake', 'param.<name>'
    value  TEXT   NOT NULL,  -- as it would stand in the file
    who    TEXT   NOT NULL,  -- who set it
    reason TEXT   NOT NULL,  -- why
    at     BIGINT NOT NULL,  -- when
    PRIMARY KEY (goal, name)
);

-- Held findings by goal: few goals at a time, whose findings are let go in batches.
CREATE INDEX findings_held_by_goal ON findings (goal, id) WHERE state = 'held';
