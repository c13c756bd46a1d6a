-- goal:       orphans-removed
-- summary:    No copy that no row knows of stands on a disk for over a week, where its repository is gone or well without it.
-- subject:    replica
-- repair:     purge
-- timeout:    30s
-- population: replicas
-- brake:      100
-- param:      age = 7d
--
-- An untracked copy may be the last one there is: of a database that went back, of a disk
-- from elsewhere. So it is returned only if its number has a tombstone, or a row with as
-- many good copies as are wanted; and it is never counted as one. All others are
-- UNKNOWN_REPOSITORY, for a person.
SELECT i.repository_id, i.fileserver_id, 10 AS priority,
       CASE WHEN p.id IS NULL THEN 'left over of ' || t.name || ', which is gone'
            ELSE 'no replica of ' || p.name || ' is to be here' END AS reason,
       i.since
  FROM inventory i
  JOIN fileservers f ON f.id = i.fileserver_id
  LEFT JOIN repositories p ON p.id = i.repository_id
  LEFT JOIN tombstones t ON t.repository_id = i.repository_id
 WHERE i.found = 'untracked' AND i.since < :now - :age AND f.health = 'online'
   AND ((p.id IS NULL AND t.repository_id IS NOT NULL)
        OR (p.removed_at IS NULL
            AND (SELECT count(*) FROM replicas o JOIN fileservers g ON g.id = o.fileserver_id
                  WHERE o.repository_id = p.id AND o.state = 'live' AND o.in_sync AND o.verified_at IS NOT NULL
                    AND g.counts AND g.health = 'online') >= p.wanted));
