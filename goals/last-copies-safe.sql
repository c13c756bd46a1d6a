-- goal:       last-copies-safe
-- summary:    No repository that ought to have several copies has only one good one.
-- subject:    repository
-- repair:     re-replicate
-- lane:       last-copies
-- timeout:    60s
-- severity:   high
-- population: repositories
-- scope:      suspects
-- param:      settling = 5m
--
-- One more loss and the repository is gone, so this waits for no grace and has a lane
-- that other repairs cannot fill. A copy is good when it is live or leaving, in sync, and
-- its fileserver is not offline. One missed status (suspect) does not make a copy lost:
-- it is asked again every second, and is either online or offline in three.
--
-- A repository that is being created, or of which more copies were just asked for the
-- first time, has one copy because the others are on their way: a young one that never
-- had a second is left to replicas-suffice.
--
-- With no good copy there is nothing to copy from, and with one wanted nothing is missing.
SELECT p.id AS repository_id, 900 AS priority,
       'one good copy of ' || CAST(p.wanted AS TEXT) || ' wanted' AS reason,
       p.bytes, p.wanted, count(*) AS copies
  FROM repositories p
  JOIN replicas r ON r.repository_id = p.id
  JOIN fileservers f ON f.id = r.fileserver_id
 WHERE p.removed_at IS NULL AND p.wanted > 1 AND p.id IN (SELECT repository_id FROM suspect)
 GROUP BY p.id, p.wanted, p.bytes, p.created_at
HAVING sum(CASE WHEN r.state IN ('live', 'leaving') AND r.in_sync AND f.health <> 'offline' THEN 1 ELSE 0 END) = 1
   AND (p.created_at <= :now - :settling OR sum(CASE WHEN r.state IN ('live', 'leaving') THEN 1 ELSE 0 END) > 1);
