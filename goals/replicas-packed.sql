-- goal:       replicas-packed
-- summary:    No replica is scattered over many packs or loose objects, and large ones have a bitmap and a commit-graph.
-- subject:    replica
-- repair:     repack
-- timeout:    30s
-- population: replicas
-- brake:      none
-- param:      packs = 20
-- param:      loose = 2000
-- param:      size = 64MiB
-- param:      most = 20000
-- recheck:    SELECT 1 FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id WHERE r.repository_id = :repository_id AND r.fileserver_id = :fileserver_id AND r.in_sync AND r.state = 'live' AND f.health = 'online' AND (r.packs > :packs OR r.loose > :loose OR (r.bytes > :size AND NOT r.indexed))
--
-- A clone of a repository in many packs, or of a large one without a bitmap, costs a
-- minute of a processor that it could have in seconds.
--
-- The condition is that of a partial index, word for word, so what is well packed costs
-- nothing. The params may ask for more of it: below 20 packs, 2,000 loose objects and
-- 64 MiB the index knows of nothing, and nothing is returned.
SELECT r.repository_id, r.fileserver_id, 30 AS priority,
       CASE WHEN r.packs > :packs THEN 'in ' || CAST(r.packs AS TEXT) || ' packs'
            WHEN r.loose > :loose THEN 'with ' || CAST(r.loose AS TEXT) || ' loose objects'
            ELSE 'without a bitmap or a commit-graph' END AS reason,
       r.bytes, r.packs, r.loose
  FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id
 WHERE (r.packs > 20 OR r.loose > 2000 OR (r.bytes > 67108864 AND NOT r.indexed))
   AND (r.packs > :packs OR r.loose > :loose OR (r.bytes > :size AND NOT r.indexed))
   AND r.in_sync AND r.state = 'live' AND f.health = 'online'
 ORDER BY r.repository_id, r.fileserver_id
 LIMIT :most;
