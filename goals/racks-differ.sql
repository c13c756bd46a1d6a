-- goal:       racks-differ
-- summary:    Every repository stands in as many racks as it has wanted copies, where other racks have room.
-- subject:    repository
-- repair:     re-replicate
-- timeout:    60s
-- population: repositories
-- scope:      suspects
-- param:      patience = 1h
--
-- One more copy in another rack; the copy too many goes by a goal of its own. A
-- repository with too few countable copies is left to replicas-suffice, whose next copy
-- goes to another rack anyway: the two never return the same repository.
--
-- A rack has room when a fileserver in it serves, is online, holds nothing of this
-- repository and can take it. With no such rack nothing can be done, so nothing is said.
SELECT p.id AS repository_id, 200 AS priority,
       'in ' || CAST(count(DISTINCT c.rack_id) AS TEXT) || CASE count(DISTINCT c.rack_id) WHEN 1 THEN ' rack' ELSE ' racks' END
         || ' with ' || CAST(p.wanted AS TEXT) || ' wanted' AS reason,
       p.bytes, p.wanted, count(DISTINCT c.rack_id) AS racks
  FROM repositories p JOIN countable_replicas c ON c.repository_id = p.id
 WHERE p.removed_at IS NULL AND p.id IN (SELECT repository_id FROM suspect)
 GROUP BY p.id, p.wanted, p.bytes
HAVING count(DISTINCT c.rack_id) < p.wanted
   AND sum(CASE WHEN c.in_sync OR c.out_of_sync_since IS NULL OR c.out_of_sync_since > :now - :patience
                THEN 1 ELSE 0 END) >= p.wanted
   AND EXISTS (SELECT 1 FROM fileservers g
                WHERE g.intent = 'serve' AND g.health = 'online' AND g.counts AND g.disk_free > p.bytes
                  AND NOT EXISTS (SELECT 1 FROM replicas o JOIN fileservers h ON h.id = o.fileserver_id
                                   WHERE o.repository_id = p.id
                                     AND (o.fileserver_id = g.id
                                          OR (h.rack_id = g.rack_id AND h.counts AND o.state IN ('live', 'creating')))));
