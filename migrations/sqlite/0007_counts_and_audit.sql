-- Counts that are always true, the audit of the suspects, and history pruned by age.

-- Whether `findings` is a lower bound: more rows than were counted were returned.
ALTER TABLE goal_states ADD COLUMN at_least BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE evaluations ADD COLUMN at_least BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX evaluations_by_start ON evaluations (began_at);

-- Whether only the audit found an exception here that is open: such a row stays though the view does not give it.
ALTER TABLE suspect ADD COLUMN drift BOOLEAN NOT NULL DEFAULT FALSE;

-- The audit's slice: ids above 'audit_after', up to 'audit_until', since 'audit_at' (0: none yet).
-- 'audit_drift': exceptions that the view had missed and counts that were wrong, ever since.
INSERT INTO counters (name, value) VALUES ('audit_after', 0), ('audit_until', 0), ('audit_at', 0), ('audit_drift', 0);
