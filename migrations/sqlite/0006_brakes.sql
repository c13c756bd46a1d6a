-- What holds repairs, in detail: whose findings a brake holds, and those that must first last.

-- The brake that holds a finding; NULL: none (a pause names itself in the deferral).
ALTER TABLE findings ADD COLUMN held_by TEXT;
-- Releases take a brake's findings in batches, by index.
CREATE INDEX findings_held ON findings (held_by, id) WHERE state = 'held';

-- The finished evaluation of its goal, by number, that makes it ready; NULL: nothing to wait out.
ALTER TABLE findings ADD COLUMN ripe_at BIGINT;
CREATE INDEX findings_ripe ON findings (goal, ripe_at) WHERE ripe_at IS NOT NULL;

-- Evaluations of the goal that finished: what ripe_at counts in.
ALTER TABLE goal_states ADD COLUMN finished BIGINT NOT NULL DEFAULT 0;

-- Since when a brake's cause is gone; NULL: it is there.
ALTER TABLE brakes ADD COLUMN clear_since BIGINT;
-- Whether it holds; FALSE: its findings are being released, or a person approved.
ALTER TABLE brakes ADD COLUMN holds BOOLEAN NOT NULL DEFAULT TRUE;

-- When a person gave it another chance: what was done before says nothing any more.
ALTER TABLE findings ADD COLUMN retried_at BIGINT;
