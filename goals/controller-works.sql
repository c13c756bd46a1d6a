-- goal:       controller-works
-- summary:    Every goal comes to an answer, and work that could start is being done.
-- subject:    key
-- severity:   high
-- param:      silence = 10m
-- param:      failures = 3
--
-- The loop watches the fleet, and this watches the loop. A goal whose evaluations do not
-- finish is unknown: its findings stand still, and what it would have found is not
-- found. Findings that could start while nothing of their repair ends mean that workers
-- are gone, or that all of their attempts hang. A deep backlog that moves is no finding
-- here: its age is what counts.
--
-- What a goal's repair is, is read off one of its findings, so that a flood of findings
-- is not read; whether one was ready for long is asked only where nothing ended.
SELECT 'goal ' || s.goal AS key, 500 AS priority,
       CAST(s.failures AS TEXT) || ' evaluations in a row did not finish' AS reason, s.error, s.evaluated_at
  FROM goal_states s
 WHERE s.state = 'unknown' AND s.failures >= :failures
UNION ALL
SELECT 'repair ' || w.repair, 500, 'work is ready, and none has ended for long', NULL, NULL
  FROM (SELECT DISTINCT (SELECT n.repair FROM findings n WHERE n.goal = s.goal ORDER BY n.goal, n.subject LIMIT 1) AS repair
          FROM goal_states s WHERE s.findings > 0) AS w
 WHERE w.repair IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM attempt_history h WHERE h.finished_at > :now - :silence AND h.repair = w.repair)
   AND EXISTS (SELECT 1 FROM findings n WHERE n.state = 'ready' AND n.repair = w.repair AND n.next_at <= :now - :silence);
