-- goal:       replicas-verified
-- summary:    Every replica was compared with what is on its disk in the last seven days.
-- subject:    replica
-- repair:     verify
-- timeout:    30s
-- population: replicas
-- brake:      none
-- param:      age = 7d
-- param:      most = 20000
-- recheck:    SELECT 1 FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id WHERE r.repository_id = :repository_id AND r.fileserver_id = :fileserver_id AND r.in_sync AND r.state IN ('live', 'leaving') AND f.health = 'online' AND (r.verified_at IS NULL OR r.verified_at < :now - :age OR EXISTS (SELECT 1 FROM inventory i WHERE i.repository_id = r.repository_id AND i.fileserver_id = r.fileserver_id AND i.found IN ('missing', 'changed')))
--
-- SQL is only as true as the disks it describes: a fileserver that came back with an
-- empty disk looks perfect in these tables until somebody looks.
--
-- Copies that are known to be out of sync are left to replicas-match: a resync compares
-- with the disk as well, and two repairs for one copy would only wait for each other. So
-- of those that the inventory flags, the ones that SQL still takes for good are returned:
-- changed by another hand, or missing although a later statement made them good again.
--
-- The CROSS JOIN makes SQLite begin with the few differences, not with all replicas.
--
-- At most 20,000 that were never verified and 20,000 of the oldest at once: with a
-- hundred million replicas a week's due ones must not become one evaluation's findings.
SELECT * FROM (
  SELECT r.repository_id, r.fileserver_id, 50 AS priority, 'never verified' AS reason, r.verified_at
    FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id
   WHERE r.verified_at IS NULL AND r.in_sync AND r.state = 'live' AND f.health = 'online'
     AND NOT EXISTS (SELECT 1 FROM inventory i WHERE i.repository_id = r.repository_id
                        AND i.fileserver_id = r.fileserver_id AND i.found <> 'untracked')
   LIMIT :most) AS never
UNION ALL
SELECT * FROM (
  SELECT r.repository_id, r.fileserver_id, 50 AS priority, 'not verified lately' AS reason, r.verified_at
    FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id
   WHERE r.verified_at < :now - :age AND r.in_sync AND r.state = 'live' AND f.health = 'online'
     AND NOT EXISTS (SELECT 1 FROM inventory i WHERE i.repository_id = r.repository_id
                        AND i.fileserver_id = r.fileserver_id AND i.found <> 'untracked')
   ORDER BY r.verified_at
   LIMIT :most) AS stale
UNION ALL
SELECT r.repository_id, r.fileserver_id, 600 AS priority, i.found || ' on its disk' AS reason, r.verified_at
  FROM inventory i CROSS JOIN replicas r JOIN fileservers f ON f.id = r.fileserver_id
 WHERE r.repository_id = i.repository_id AND r.fileserver_id = i.fileserver_id
   AND i.found IN ('missing', 'changed') AND r.in_sync AND r.state IN ('live', 'leaving') AND f.health = 'online';
