-- goal:       disks-balance
-- summary:    The fullest disk and the emptiest that could take something of it are within ten points of each other.
-- subject:    replica
-- repair:     rebalance
-- timeout:    30s
-- brake:      none
-- severity:   low
-- param:      start = 10%
-- param:      stop = 7%
-- param:      lately = 10m
-- param:      quiet = 1d
-- param:      sources = 16
-- param:      window = 1000
-- param:      batch = 200
-- recheck:    WITH level AS MATERIALIZED (SELECT f.id, f.rack_id, f.capacity, 1.0 * (f.disk_used + w.arriving + w.landed - w.leaving + CASE WHEN f.id = :fileserver_id THEN COALESCE(a.bytes, 0) ELSE 0 END - CASE WHEN f.id = a.destination_id THEN a.bytes ELSE 0 END) / f.capacity AS fill FROM fileservers f JOIN fileserver_flows w ON w.fileserver_id = f.id LEFT JOIN attempts a ON a.repository_id = :repository_id AND a.step = 'move' WHERE f.counts AND f.intent = 'serve' AND f.health = 'online' AND f.empty_since IS NULL AND f.capacity > 0 AND f.weight > 0) SELECT 1 FROM level f JOIN replicas r ON r.fileserver_id = f.id JOIN repositories p ON p.id = r.repository_id WHERE f.id = :fileserver_id AND r.repository_id = :repository_id AND (f.fill - (SELECT min(fill) FROM level) > :start OR (f.fill - (SELECT min(fill) FROM level) >= :stop AND (EXISTS (SELECT 1 FROM findings WHERE goal = 'disks-balance') OR EXISTS (SELECT 1 FROM evaluations v WHERE v.began_at > :now - :lately AND v.goal || '' = 'disks-balance' AND v.findings > 0)))) AND r.state = 'live' AND r.in_sync AND p.removed_at IS NULL AND (SELECT count(*) FROM replicas o WHERE o.repository_id = p.id AND o.state = 'live' AND o.in_sync) = p.wanted AND NOT EXISTS (SELECT 1 FROM attempt_history h WHERE h.repository_id = r.repository_id AND h.destination_id = r.fileserver_id AND h.step = 'move' AND h.outcome = 'succeeded' AND h.finished_at > :now - :quiet) AND EXISTS (SELECT 1 FROM level g CROSS JOIN (SELECT sum(fill * capacity) / sum(capacity) AS mean FROM level) e WHERE g.fill + 1.0 * p.bytes / g.capacity < CASE WHEN f.fill - :stop / 2 <= e.mean + :stop / 4 THEN f.fill - :stop / 2 WHEN f.fill - 2 * :stop > e.mean + :stop / 4 THEN f.fill - 2 * :stop ELSE e.mean + :stop / 4 END AND NOT EXISTS (SELECT 1 FROM replicas o WHERE o.repository_id = p.id AND o.fileserver_id = g.id AND o.state <> 'creating') AND (SELECT count(*) FROM replicas o JOIN fileservers h ON h.id = o.fileserver_id WHERE o.repository_id = p.id AND o.fileserver_id <> f.id AND h.counts AND o.state = 'live' AND h.rack_id = g.rack_id) <= (SELECT count(*) FROM replicas o JOIN fileservers h ON h.id = o.fileserver_id WHERE o.repository_id = p.id AND o.fileserver_id <> f.id AND h.counts AND o.state = 'live' AND h.rack_id = f.rack_id))
--
-- Compares fileservers, a few hundred rows, and never sorts what one holds. Of the :sources
-- fullest it looks at about :window replicas each, from a point that moves once an hour, and
-- returns at most :batch of those that may move: enough to be worked on until the next
-- evaluation, never more than would bring the disk down to the mean of all (or, where racks
-- keep one below that too full for its own, halfway down to the emptiest).
--
-- What is under way counts: copies that arrive, that no longer count and are about to go, or
-- that are being moved. Without that, every evaluation would move the same bytes once more.
--
-- It begins above :start and goes on until below :stop, so that it does not begin again at
-- once; what disks say is a little more than what copies are said to take, so :stop is a point
-- less than what is promised. That it is in the middle shows in its own open findings, or in those of an evaluation
-- :lately: for a moment all that may move may be on its way, or be counted where it was and where it is, and to end
-- there would leave disks anywhere below :start. (|| '' has evaluations be found by their time, which are few.) A
-- replica that was moved stays for :quiet. Whatever has an attempt is returned until that ends:
-- half a copy helps nobody.
--
-- A replica may move where a disk is emptier by half of :stop with it and not much above
-- the mean (what moved stays for :quiet, so nobody may take too much), does not have the
-- repository, and stands in a rack with no more of its copies than the one that is left.
-- fill_below (whole hundredths of a percent, so one more: a plan must find every place that
-- is found here) binds the plan to that. Where nothing may move,
-- nothing is said, however far apart the disks are: more racks would help, no repair can.
WITH level AS MATERIALIZED (
  SELECT f.id, f.rack_id, f.capacity, 1.0 * (f.disk_used + w.arriving + w.landed - w.leaving) / f.capacity AS fill
    FROM fileservers f JOIN fileserver_flows w ON w.fileserver_id = f.id
   WHERE f.counts AND f.intent = 'serve' AND f.health = 'online' AND f.empty_since IS NULL AND f.capacity > 0 AND f.weight > 0
), full_ones AS MATERIALIZED (
  SELECT l.id, l.rack_id, l.capacity, l.fill, e.fill AS emptiest, e.mean,
         CASE WHEN l.fill - :stop / 2 <= e.mean + :stop / 4 THEN l.fill - :stop / 2
              WHEN l.fill - 2 * :stop > e.mean + :stop / 4 THEN l.fill - 2 * :stop
              ELSE e.mean + :stop / 4 END AS below
    FROM level l CROSS JOIN (SELECT min(fill) AS fill, sum(fill * capacity) / sum(capacity) AS mean FROM level) e
   WHERE l.fill - e.fill > :start
      OR (l.fill - e.fill >= :stop
          AND (EXISTS (SELECT 1 FROM findings WHERE goal = 'disks-balance')
               OR EXISTS (SELECT 1 FROM evaluations v
                           WHERE v.began_at > :now - :lately AND v.goal || '' = 'disks-balance' AND v.findings > 0)))
   ORDER BY l.fill DESC, l.id
   LIMIT :sources
), point AS MATERIALIZED (
  SELECT m.ids, m.width, (:now / 3600000 * m.width) % m.ids AS low
    FROM (SELECT i.ids, CASE WHEN i.replicas * i.ids <= :window * i.fileservers * i.ids THEN i.ids
                             WHEN :window * i.fileservers * i.ids / i.replicas < i.ids
                             THEN :window * i.fileservers * i.ids / i.replicas ELSE i.ids END AS width
            FROM (SELECT (SELECT max(id) FROM repositories) + 1 AS ids,
                         (SELECT value FROM counters WHERE name = 'replicas') AS replicas,
                         (SELECT value FROM counters WHERE name = 'fileservers') AS fileservers) i) m
), movable AS (
  SELECT r.repository_id, r.fileserver_id, f.fill, f.emptiest, f.mean, f.below, f.capacity, p.bytes,
         row_number() OVER (PARTITION BY r.fileserver_id ORDER BY r.repository_id) AS place,
         sum(p.bytes) OVER (PARTITION BY r.fileserver_id ORDER BY r.repository_id) AS so_far
    FROM full_ones f
    CROSS JOIN point t
    CROSS JOIN (SELECT 0 AS round UNION ALL SELECT 1) s
    JOIN replicas r ON r.fileserver_id = f.id AND r.repository_id >= t.low - s.round * t.ids
                   AND r.repository_id < t.low + t.width - s.round * t.ids
    JOIN repositories p ON p.id = r.repository_id
   WHERE r.state = 'live' AND r.in_sync AND p.removed_at IS NULL
     AND p.replica_count = p.wanted
     AND NOT EXISTS (SELECT 1 FROM replicas o WHERE o.repository_id = p.id AND (o.state <> 'live' OR NOT o.in_sync))
     AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.repository_id = p.id AND a.goal = 'disks-balance')
     AND NOT EXISTS (SELECT 1 FROM attempt_history h
                      WHERE h.repository_id = r.repository_id AND h.destination_id = r.fileserver_id AND h.step = 'move'
                        AND h.outcome = 'succeeded' AND h.finished_at > :now - :quiet)
     AND EXISTS (SELECT 1 FROM level g
                  WHERE g.fill + 1.0 * p.bytes / g.capacity < f.below
                    AND NOT EXISTS (SELECT 1 FROM replicas o WHERE o.repository_id = p.id AND o.fileserver_id = g.id)
                    AND (SELECT count(*) FROM replicas o JOIN fileservers h ON h.id = o.fileserver_id
                          WHERE o.repository_id = p.id AND o.fileserver_id <> f.id AND h.counts AND h.rack_id = g.rack_id)
                     <= (SELECT count(*) FROM replicas o JOIN fileservers h ON h.id = o.fileserver_id
                          WHERE o.repository_id = p.id AND o.fileserver_id <> f.id AND h.counts AND h.rack_id = f.rack_id))
)
SELECT repository_id, fileserver_id, 20 AS priority,
       CAST(CAST(100 * fill AS BIGINT) AS TEXT) || '% full, the emptiest ' || CAST(CAST(100 * emptiest AS BIGINT) AS TEXT) || '%' AS reason,
       bytes, CAST(10000 * below AS BIGINT) + 1 AS fill_below
  FROM movable
 WHERE place <= :batch
   AND so_far - bytes < capacity * CASE WHEN fill > mean THEN fill - mean ELSE (fill - emptiest) / 2 END
UNION ALL
SELECT d.repository_id, d.fileserver_id, 20, d.reason, a.bytes, NULL
  FROM attempts a JOIN findings d ON d.id = a.finding_id
 WHERE a.goal = 'disks-balance' AND d.repository_id IS NOT NULL AND d.fileserver_id IS NOT NULL;
