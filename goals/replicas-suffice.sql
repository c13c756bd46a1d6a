-- goal:       replicas-suffice
-- summary:    Every repository has as many countable replicas as it ought to have.
-- subject:    repository
-- repair:     re-replicate
-- timeout:    60s
-- population: repositories
-- scope:      suspects
-- param:      patience = 1h
--
-- A replica counts while it is live on a fileserver that counts: not one that is
-- evacuating, and not one that was away for longer than the grace. One that has been out
-- of sync for over an hour counts as missing: resyncing it evidently does not help.
--
-- The fewest good copies come first. With none there is nothing to copy from: such a
-- repository comes last, so that it does not stand in the way of those that can be helped.
--
-- The join is written out and a CASE is summed: SQLite would materialize the view
-- countable_replicas under an outer join.
SELECT p.id AS repository_id,
       CASE sum(CASE WHEN r.state IN ('live', 'leaving') AND r.in_sync AND f.health = 'online' THEN 1 ELSE 0 END)
            WHEN 0 THEN 50 WHEN 1 THEN 800 WHEN 2 THEN 600 ELSE 400 END AS priority,
       CAST(sum(CASE WHEN r.state = 'live' AND f.counts AND (r.in_sync OR r.out_of_sync_since IS NULL
                               OR r.out_of_sync_since > :now - :patience) THEN 1 ELSE 0 END) AS TEXT)
         || ' of ' || CAST(p.wanted AS TEXT) || CASE p.wanted WHEN 1 THEN ' copy' ELSE ' copies' END AS reason,
       p.bytes, p.wanted,
       sum(CASE WHEN r.state = 'live' AND f.counts AND (r.in_sync OR r.out_of_sync_since IS NULL
                       OR r.out_of_sync_since > :now - :patience) THEN 1 ELSE 0 END) AS countable
  FROM repositories p
  LEFT JOIN replicas r ON r.repository_id = p.id
  LEFT JOIN fileservers f ON f.id = r.fileserver_id
 WHERE p.removed_at IS NULL AND p.id IN (SELECT repository_id FROM suspect)
 GROUP BY p.id, p.wanted, p.bytes
HAVING sum(CASE WHEN r.state = 'live' AND f.counts AND (r.in_sync OR r.out_of_sync_since IS NULL
                      OR r.out_of_sync_since > :now - :patience) THEN 1 ELSE 0 END) < p.wanted;
