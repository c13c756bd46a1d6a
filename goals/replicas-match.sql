-- goal:       replicas-match
-- summary:    Every replica that can be reached has the references that its repository ought to have.
-- subject:    replica
-- repair:     resync
-- timeout:    30s
-- population: replicas
--
-- The writer of a checksum says whether it is the definitive one, so this reads the
-- partial index of those that are not and never compares. A copy that is missing on its
-- disk has no checksum and is returned too: a resync makes it anew. Copies on a
-- fileserver that is away are left alone until it answers.
SELECT r.repository_id, r.fileserver_id,
       CASE WHEN (SELECT count(*) FROM replicas o
                   WHERE o.repository_id = r.repository_id AND o.in_sync AND o.state IN ('live', 'leaving')
                     AND o.fileserver_id NOT IN (SELECT id FROM fileservers WHERE health = 'offline')) < 2
            THEN 500 ELSE 300 END AS priority,
       CASE WHEN i.found = 'missing' THEN 'missing on its disk'
            WHEN r.checksum IS NULL THEN 'its references are not known or damaged'
            WHEN r.version < p.version THEN 'behind: version ' || CAST(r.version AS TEXT) || ' of ' || CAST(p.version AS TEXT)
            ELSE 'other references than it ought to have' END AS reason,
       p.bytes, r.version, p.version AS wanted_version, r.out_of_sync_since
  FROM replicas r
  JOIN fileservers f ON f.id = r.fileserver_id
  JOIN repositories p ON p.id = r.repository_id
  LEFT JOIN inventory i ON i.repository_id = r.repository_id AND i.fileserver_id = r.fileserver_id
 WHERE NOT r.in_sync AND r.state IN ('live', 'leaving') AND f.health = 'online';
