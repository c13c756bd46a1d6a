-- Pushes, as routers open, close and settle them.

-- The id of the key that new_checksum was taken under.
ALTER TABLE pushes ADD COLUMN checksum_key BIGINT;
-- Who closed it, where that was not the router that opened it: a router or a worker that settled it. NULL: its router.
ALTER TABLE pushes ADD COLUMN settled_by TEXT;
-- While open: why no rule can decide it, for a person; NULL: none needs to.
ALTER TABLE pushes ADD COLUMN undecided TEXT;

-- All pushes of a repository, when it goes.
CREATE INDEX pushes_by_repository ON pushes (repository_id);
-- Those that ended, by age, to be pruned.
CREATE INDEX pushes_by_closed ON pushes (closed_at) WHERE closed_at IS NOT NULL;
