-- goal:       replicas-scrubbed
-- summary:    Every object of every replica was checked in the last thirty days.
-- subject:    replica
-- repair:     scrub
-- timeout:    30s
-- population: replicas
-- brake:      none
-- param:      age = 30d
-- param:      most = 20000
-- recheck:    SELECT 1 FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id WHERE r.repository_id = :repository_id AND r.fileserver_id = :fileserver_id AND r.in_sync AND r.state IN ('live', 'leaving') AND f.health = 'online' AND COALESCE(r.scrubbed_at, r.state_since) < :now - :age
--
-- A flipped bit is invisible to references and to a walk along them: only reading every
-- object finds it. A copy that was never scrubbed counts from when it was made, for it
-- was hashed and walked whole then; so a new fleet is not read through on its first day.
--
-- The oldest come first, 20,000 at once at most, by an index in their order: with a
-- hundred million replicas a month's due ones must not become one evaluation's findings.
SELECT r.repository_id, r.fileserver_id, 20 AS priority, 'not scrubbed lately' AS reason,
       r.bytes, r.scrubbed_at
  FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id
 WHERE COALESCE(r.scrubbed_at, r.state_since) < :now - :age
   AND r.in_sync AND r.state IN ('live', 'leaving') AND f.health = 'online'
 ORDER BY COALESCE(r.scrubbed_at, r.state_since)
 LIMIT :most;
