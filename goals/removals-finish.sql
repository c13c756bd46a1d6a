-- goal:       removals-finish
-- summary:    Of a repository removed longer ago than its retention no copy is left.
-- subject:    replica
-- repair:     purge
-- timeout:    60s
-- population: replicas
-- brake:      none
-- param:      retention = 7d
--
-- `trued repo remove` marks the replicas and touches no disk; until the retention is over
-- `trued repo undelete` brings them back. The last copy to go leaves a tombstone.
--
-- The CROSS JOIN makes SQLite begin with the few repositories that were removed.
--
-- No brake: each of these was asked for by name, and what is not removed is refused by the
-- repair itself.
SELECT r.repository_id, r.fileserver_id, 20 AS priority,
       COALESCE(p.removed_name, p.name) || ' was removed' AS reason, r.bytes, p.removed_at
  FROM repositories p CROSS JOIN replicas r
  JOIN fileservers f ON f.id = r.fileserver_id
 WHERE r.repository_id = p.id AND p.removed_at IS NOT NULL AND p.removed_at < :now - :retention
   AND r.state = 'removing' AND f.health = 'online';
