-- goal:       headroom-remains
-- summary:    If any one rack were lost, the others would have room for its data.
-- subject:    fileserver
-- population: fileservers
-- severity:   high
-- param:      fill = 90%
--
-- With a rack gone, everything in it is copied elsewhere. If elsewhere is full, copies
-- stay too few until somebody brings disks, and that is too late to order them.
--
-- Every rack is asked, not the fullest alone: one that holds less and is nearly empty
-- takes more room away with it. All fileservers of a rack that the others could not hold
-- are returned: these are the ones to relieve, and any other rack is the place for disks.
--
-- Room is what placement would use: fileservers that serve, are there and count, up to
-- :fill of their disks (keep it equal to `fleet.fill_limit`). What is evacuating or was
-- away for longer than the grace is copied already, so it neither needs nor gives room.
-- With a single rack there are no others, and nothing to keep room for.
SELECT f.id AS fileserver_id,
       'room elsewhere for ' || CAST(CAST(100 * (a.room - m.room) / m.held AS BIGINT) AS TEXT)
         || '% of what rack ' || k.name || ' holds' AS reason,
       CAST(m.held AS BIGINT) AS rack_holds, CAST(a.room - m.room AS BIGINT) AS room_elsewhere, f.disk_used
  FROM fileservers f
  JOIN racks k ON k.id = f.rack_id
  JOIN (SELECT rack_id, sum(disk_used) AS held,
               sum(CASE WHEN intent <> 'serve' OR health = 'offline' OR weight = 0 OR disk_used >= capacity * :fill THEN 0
                        WHEN disk_free < capacity * :fill - disk_used THEN disk_free
                        ELSE CAST(capacity * :fill AS BIGINT) - disk_used END) AS room
          FROM fileservers WHERE counts GROUP BY rack_id) m ON m.rack_id = f.rack_id
 CROSS JOIN
       (SELECT count(DISTINCT rack_id) AS racks,
               sum(CASE WHEN intent <> 'serve' OR health = 'offline' OR weight = 0 OR disk_used >= capacity * :fill THEN 0
                        WHEN disk_free < capacity * :fill - disk_used THEN disk_free
                        ELSE CAST(capacity * :fill AS BIGINT) - disk_used END) AS room
          FROM fileservers WHERE counts) a
 WHERE f.counts AND a.racks > 1 AND m.held > a.room - m.room;
