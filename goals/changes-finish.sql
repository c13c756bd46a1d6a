-- goal:       changes-finish
-- summary:    No copy and no removal was left half done.
-- subject:    replica
-- repair:     resume
-- timeout:    30s
-- population: replicas
-- param:      after = 1h
-- param:      per_gib = 30m
--
-- A worker that dies leaves a row that says what was begun. Mostly the next attempt goes
-- on with it. Where nobody wants that copy any more, or its finding was closed, the row
-- would stand for ever, and count as a place that is taken.
--
-- Far longer than its like takes: an hour and half an hour for each GiB. What a live
-- attempt works on is left alone, but for the attempt of this goal's own repair. The
-- copies of removed repositories are another goal's.
SELECT r.repository_id, r.fileserver_id, 250 AS priority,
       CASE WHEN r.state = 'creating' THEN 'a copy was begun and not finished'
            ELSE 'a removal was begun and not finished' END AS reason,
       r.state, r.state_since
  FROM replicas r
  JOIN repositories p ON p.id = r.repository_id
  JOIN fileservers f ON f.id = r.fileserver_id
 WHERE r.state <> 'live' AND r.state IN ('creating', 'removing') AND p.removed_at IS NULL
   AND r.state_since < :now - :after - p.bytes / 1073741824 * :per_gib AND f.health = 'online'
   AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.repository_id = r.repository_id AND a.repair <> 'resume');
