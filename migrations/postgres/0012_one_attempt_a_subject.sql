-- Attempts about a fileserver or a key: one at a time each, as a repository has.

CREATE UNIQUE INDEX attempts_one_per_subject ON attempts (subject) WHERE repository_id IS NULL;
