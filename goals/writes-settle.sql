-- goal:       writes-settle
-- summary:    No push is left without an outcome.
-- subject:    repository
-- repair:     settle
-- timeout:    30s
-- population: repositories
-- param:      after = 5s
--
-- A router renews the lease of its push while it works on it. One whose lease is over has
-- lost its router, or its router has lost SQL; until it is settled nobody else pushes there.
-- A router that meets it settles it by itself, so this is for repositories that nobody
-- pushes to. Reads the index of open pushes alone, which are few.
SELECT u.repository_id,
       CASE WHEN u.undecided IS NULL THEN 400 ELSE 350 END AS priority,
       CASE WHEN u.undecided IS NULL THEN 'a push lost its router before its outcome was written'
            ELSE 'no rule can decide a push: ' || u.undecided END AS reason,
       u.router, u.base_version, u.opened_at, u.lease_until
  FROM pushes u
  JOIN repositories p ON p.id = u.repository_id
 WHERE u.state = 'open' AND u.lease_until < :now - :after AND p.removed_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM adoptions a WHERE a.repository_id = u.repository_id)
UNION ALL
SELECT a.repository_id, 450, 'a person wishes that one copy be adopted', NULL, p.version, a.wished_at, NULL
  FROM adoptions a
  JOIN repositories p ON p.id = a.repository_id
 WHERE p.removed_at IS NULL;
