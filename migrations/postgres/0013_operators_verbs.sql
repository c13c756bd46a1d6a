-- What operators say while everything runs: limits with a reason, priorities of their own; and who holds a write lock.

-- Why it was set.
ALTER TABLE limits ADD COLUMN reason TEXT;

-- The priority that a person gave it, over what its goal says; NULL: the goal's.
ALTER TABLE findings ADD COLUMN bumped INTEGER;

-- The attempt that holds the write lock: it renews the lease and gives it back. NULL: none does.
ALTER TABLE repositories ADD COLUMN write_lock_attempt BIGINT;

-- Last copies that are due become ready before all others, however many of those there are.
CREATE INDEX findings_due_last ON findings (next_at)
    WHERE state = 'waiting' AND repair IS NOT NULL AND repaired_at IS NULL AND lane = -1;
