-- What is taken away: removed repositories give their name free, tombstones go on counting epochs.

-- The name that a removed repository had; its `name` is then '@<id>', which nobody can give. NULL: it is not removed.
ALTER TABLE repositories ADD COLUMN removed_name TEXT;
-- Those that are removed are few, and are listed by number and looked up by name.
CREATE INDEX repositories_removed ON repositories (id) WHERE removed_at IS NOT NULL;
CREATE INDEX repositories_removed_name ON repositories (removed_name) WHERE removed_name IS NOT NULL;

-- The highest epoch given to a repair of it: what is left on a disk is purged under higher ones.
ALTER TABLE tombstones ADD COLUMN repair_epoch BIGINT NOT NULL DEFAULT 0;

-- Copies that were set aside are purged by age.
CREATE INDEX quarantine_by_age ON quarantine (since);
-- Copies that no row knows: few, looked at by every status.
CREATE INDEX inventory_untracked ON inventory (since) WHERE found = 'untracked';
