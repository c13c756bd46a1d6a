-- Copies that ended lately, by where they went: the view reads those since each fileserver's last status, and no others,
-- whatever is believed of how many there are.
CREATE INDEX attempt_history_landed ON attempt_history (destination_id, finished_at, bytes)
    WHERE outcome = 'succeeded' AND step IN ('replicate', 'move');

CREATE OR REPLACE VIEW fileserver_flows AS
  SELECT f.id AS fileserver_id, CAST(COALESCE(sum(m.arriving), 0) AS BIGINT) AS arriving,
         CAST(COALESCE(sum(m.landed), 0) AS BIGINT) AS landed, CAST(COALESCE(sum(m.leaving), 0) AS BIGINT) AS leaving
    FROM fileservers f
    LEFT JOIN (SELECT destination_id AS fileserver_id, bytes AS arriving, 0 AS landed, 0 AS leaving
                 FROM attempts WHERE step IN ('replicate', 'move')
               UNION ALL
               SELECT g.id, 0, (SELECT sum(h.bytes) FROM attempt_history h
                                 WHERE h.destination_id = g.id AND h.finished_at > g.seen_at - 3000
                                   AND h.finished_at > (SELECT now FROM clock) - 120000
                                   AND h.outcome = 'succeeded' AND h.step IN ('replicate', 'move')), 0
                 FROM fileservers g
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
