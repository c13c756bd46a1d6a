-- goal:       quarantine-purged
-- summary:    No copy that was set aside stays in quarantine for over a week.
-- subject:    replica
-- repair:     purge
-- timeout:    30s
-- population: replicas
-- brake:      none
-- param:      age = 7d
--
-- A week is for people: whatever took a copy away by mistake, the copy is still there. One
-- whose repository has no good copy left is kept for as long as that is so.
--
-- One at a time for each replica, the oldest: its path is its number and the moment, so the
-- first by name. No brake: nothing here is a replica, and where many were set aside at
-- once, an evacuation was wished for a week ago.
SELECT q.repository_id, q.fileserver_id, 10 AS priority, 'set aside: ' || q.reason AS reason, q.path, q.bytes, q.since
  FROM quarantine q
  JOIN fileservers f ON f.id = q.fileserver_id
 WHERE q.since < :now - :age AND f.health = 'online'
   AND q.path = (SELECT min(o.path) FROM quarantine o
                  WHERE o.repository_id = q.repository_id AND o.fileserver_id = q.fileserver_id)
   AND (EXISTS (SELECT 1 FROM tombstones t WHERE t.repository_id = q.repository_id)
        OR EXISTS (SELECT 1 FROM repositories p WHERE p.id = q.repository_id AND p.removed_at IS NOT NULL)
        OR EXISTS (SELECT 1 FROM replicas r JOIN fileservers g ON g.id = r.fileserver_id
                    WHERE r.repository_id = q.repository_id AND r.state IN ('live', 'leaving') AND r.in_sync
                      AND g.health = 'online'));
