-- Bytes under way: what goals that level disks, and placement, must count beside what disks hold now.

-- Whether capacity and use are those of the whole disk, quarantine and strangers' files included; else of repositories alone.
ALTER TABLE fileservers ADD COLUMN whole_disk BOOLEAN NOT NULL DEFAULT FALSE;

-- Sums by fileserver, without a look at the rows.
CREATE INDEX replicas_leaving ON replicas (fileserver_id, bytes) WHERE state IN ('leaving', 'removing');
CREATE INDEX quarantine_by_fileserver ON quarantine (fileserver_id, bytes);

-- One row a fileserver. arriving: of live attempts that make a copy there. landed: of those that ended since its
-- status was taken, which its disk_used does not show yet. leaving: copies that no longer count, those that live
-- attempts move away, and what is set aside where the disk as a whole is counted.
CREATE VIEW fileserver_flows AS
  SELECT f.id AS fileserver_id, CAST(COALESCE(sum(m.arriving), 0) AS BIGINT) AS arriving,
         CAST(COALESCE(sum(m.landed), 0) AS BIGINT) AS landed, CAST(COALESCE(sum(m.leaving), 0) AS BIGINT) AS leaving
    FROM fileservers f
    LEFT JOIN (SELECT destination_id AS fileserver_id, bytes AS arriving, 0 AS landed, 0 AS leaving
                 FROM attempts WHERE step IN ('replicate', 'move')
               UNION ALL
               SELECT g.id, 0, h.bytes, 0
                 FROM attempt_history h JOIN fileservers g ON g.id = h.destination_id
                WHERE h.finished_at > (SELECT now FROM clock) - 120000 AND h.finished_at > g.seen_at - 3000
                  AND h.outcome = 'succeeded' AND h.step IN ('replicate', 'move')
               UNION ALL
               SELECT d.fileserver_id, 0, 0, a.bytes
                 FROM attempts a JOIN findings d ON d.id = a.finding_id WHERE a.step = 'move'
               UNION ALL
               SELECT fileserver_id, 0, 0, sum(bytes) FROM replicas WHERE state IN ('leaving', 'removing') GROUP BY fileserver_id
               UNION ALL
               SELECT q.fileserver_id, 0, 0, sum(q.bytes)
                 FROM fileservers g JOIN quarantine q ON q.fileserver_id = g.id WHERE g.whole_disk GROUP BY q.fileserver_id
              ) m ON m.fileserver_id = f.id
   GROUP BY f.id;
