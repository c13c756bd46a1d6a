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
-- A flood of findings must not slow down what watches it. So a goal's repair is read off
-- one of its findings; only where nothing of that repair ended is one that could start
-- looked for, and only among that goal's own. CASE keeps that order, LIMIT keeps
-- PostgreSQL from making a join of it, and ORDER BY keeps it to the indexes.
SELECT 'goal ' || s.goal AS key, 500 AS priority,
       CAST(s.failures AS TEXT) || ' evaluations in a row did not finish' AS reason, s.error, s.evaluated_at
  FROM goal_states s
 WHERE s.state = 'unknown' AND s.failures >= :failures
UNION ALL
SELECT 'repair ' || still.repair, 500, 'work is ready, and none has ended for long', NULL, NULL
  FROM (SELECT DISTINCT w.repair
          FROM (SELECT s.goal, (SELECT n.repair FROM findings n WHERE n.goal = s.goal ORDER BY n.goal, n.subject LIMIT 1) AS repair
                  FROM goal_states s WHERE s.findings > 0) AS w
         WHERE CASE WHEN (SELECT h.id FROM attempt_history h
                           WHERE h.finished_at > :now - :silence AND h.repair = w.repair
                           ORDER BY h.finished_at LIMIT 1) IS NULL
                    THEN (SELECT n.id FROM findings n
                           WHERE n.goal = w.goal AND n.state = 'ready' AND n.repair = w.repair
                             AND n.next_at <= :now - :silence
                           ORDER BY n.goal, n.subject LIMIT 1)
               END IS NOT NULL) AS still;
