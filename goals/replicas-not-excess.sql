-- goal:       replicas-not-excess
-- summary:    No repository has more countable replicas than it ought to have for over an hour.
-- subject:    replica
-- repair:     trim
-- timeout:    60s
-- population: replicas
-- scope:      suspects
-- param:      patience = 1h
--
-- One too many is what a fileserver leaves behind that was thought lost and came back, or
-- what a copy in another rack was made for. It is no harm, so nothing is done in a hurry:
-- all replicas must be live, in sync and on fileservers that were online for the hour, and
-- nothing else may be under way for the repository.
--
-- The worst placed goes: one that shares its rack with another, else the one on the fullest
-- fileserver (in tenths, so that a disk that fills a little does not change the choice from
-- one evaluation to the next), else the one with the highest number.
SELECT r.repository_id, r.fileserver_id, 40 AS priority,
       CAST(p.replica_count AS TEXT) || ' copies, ' || CAST(p.wanted AS TEXT) || ' wanted' AS reason,
       r.bytes, p.wanted, p.replica_count AS replicas
  FROM repositories p
  JOIN replicas r ON r.repository_id = p.id
 WHERE p.id IN (SELECT repository_id FROM suspect)
   AND p.removed_at IS NULL AND p.replica_count > p.wanted
   AND NOT EXISTS (SELECT 1 FROM replicas o JOIN fileservers g ON g.id = o.fileserver_id
                    WHERE o.repository_id = p.id
                      AND (o.state <> 'live' OR NOT o.in_sync OR o.state_since > :now - :patience
                           OR NOT g.counts OR g.health <> 'online' OR g.health_since > :now - :patience))
   AND r.fileserver_id =
       (SELECT w.fileserver_id
          FROM replicas w JOIN fileservers h ON h.id = w.fileserver_id
         WHERE w.repository_id = p.id
         ORDER BY CASE WHEN EXISTS (SELECT 1 FROM replicas n JOIN fileservers m ON m.id = n.fileserver_id
                                     WHERE n.repository_id = w.repository_id AND n.fileserver_id <> w.fileserver_id
                                       AND m.rack_id = h.rack_id) THEN 0 ELSE 1 END,
                  CASE WHEN h.capacity > 0 THEN h.disk_used * 10 / h.capacity ELSE 0 END DESC,
                  w.fileserver_id DESC
         LIMIT 1);
