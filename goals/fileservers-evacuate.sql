-- goal:       fileservers-evacuate
-- summary:    What is to leave a fileserver, and is not needed there any more, has left it.
-- subject:    replica
-- repair:     evacuate
-- timeout:    60s
-- population: replicas
-- scope:      suspects
--
-- On an evacuating or retiring fileserver, or marked leaving because a better place has a
-- copy by now: such a replica goes once as many others as are wanted count and are good.
-- Until then replicas-suffice makes those others; nothing here waits for it.
--
-- A removal that was begun and that nobody is at any more comes first: its copy is at its
-- place or set aside, and nobody knows which until it is finished.
--
-- The number of others is asked per replica, not by a GROUP BY: on a fleet that is well
-- there are none of these, and one that is emptied pays for its own replicas alone.
SELECT r.repository_id, r.fileserver_id,
       CASE r.state WHEN 'removing' THEN 300 ELSE 150 END AS priority,
       CASE r.state WHEN 'removing' THEN 'its removal was begun' WHEN 'leaving' THEN 'leaving, and not needed here'
            ELSE 'on a fileserver that is to ' || f.intent || ', and not needed there' END AS reason,
       r.bytes, p.wanted
  FROM replicas r
  JOIN fileservers f ON f.id = r.fileserver_id
  JOIN repositories p ON p.id = r.repository_id
 WHERE r.repository_id IN (SELECT repository_id FROM suspect)
   AND p.removed_at IS NULL AND f.health = 'online'
   AND ((r.state = 'removing'
         AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.repository_id = r.repository_id AND a.step = 'remove'
                            AND a.goal <> 'fileservers-evacuate'))
        OR ((r.state = 'leaving' OR (r.state = 'live' AND f.intent IN ('evacuate', 'retire')))
            AND (SELECT count(*) FROM replicas o JOIN fileservers g ON g.id = o.fileserver_id
                  WHERE o.repository_id = r.repository_id AND o.fileserver_id <> r.fileserver_id
                    AND o.state = 'live' AND o.in_sync AND g.counts AND g.health = 'online') >= p.wanted));
