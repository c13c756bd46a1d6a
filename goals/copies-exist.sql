-- goal:       copies-exist
-- summary:    Every repository has at least one good copy somewhere.
-- subject:    repository
-- timeout:    60s
-- severity:   high
-- population: repositories
-- scope:      suspects
--
-- Where no copy is good there is nothing to copy from: only a person can help, with a
-- backup or by adopting what is left. So this has no repair, and tells at once.
--
-- A good copy on a fileserver that does not answer is not lost: it is waited for. A
-- repository that never had a definitive checksum is still being created.
SELECT p.id AS repository_id, 950 AS priority,
       'no good copy of ' || CAST(p.wanted AS TEXT) || ' wanted' AS reason,
       p.bytes, p.wanted, count(r.fileserver_id) AS copies
  FROM repositories p
  LEFT JOIN replicas r ON r.repository_id = p.id
 WHERE p.removed_at IS NULL AND p.checksum IS NOT NULL AND p.id IN (SELECT repository_id FROM suspect)
 GROUP BY p.id, p.wanted, p.bytes
HAVING COALESCE(sum(CASE WHEN r.state IN ('live', 'leaving') AND r.in_sync THEN 1 ELSE 0 END), 0) = 0;
