-- goal:       agents-current
-- summary:    Every fileserver that is there runs an agent and a git no older than the fleet's minimum.
-- subject:    fileserver
-- population: fileservers
-- severity:   low
-- param:      agent = "0.1.0"
-- param:      git = "2.39"
--
-- A fleet is upgraded one fileserver at a time, and one is always forgotten. Raise the
-- minimum when an upgrade begins: what is still to be done is then a list.
--
-- Versions are compared as numbers, so 2.9 is older than 2.39. What follows the third
-- number (-rc.1, .windows.1) is left aside. A fileserver that has not said a version yet,
-- or is offline, or is to be retired is not returned: what it runs is not known, or does
-- not matter.
--
-- Both engines know ltrim: what it removes is the leading number.
WITH said(text) AS (
  SELECT agent_version FROM fileservers WHERE agent_version IS NOT NULL
   UNION SELECT git_version FROM fileservers WHERE git_version IS NOT NULL
   UNION SELECT :agent UNION SELECT :git
), first(text, one, rest) AS (
  SELECT text, substr(text, 1, length(text) - length(ltrim(text, '0123456789'))), substr(ltrim(text, '0123456789'), 2)
    FROM said
), second(text, one, two, rest) AS (
  SELECT text, one, substr(rest, 1, length(rest) - length(ltrim(rest, '0123456789'))), substr(ltrim(rest, '0123456789'), 2)
    FROM first
), third(text, one, two, three) AS (
  SELECT text, one, two, substr(rest, 1, length(rest) - length(ltrim(rest, '0123456789'))) FROM second
), versions(text, number) AS (
  SELECT text, CAST('0' || substr(one, 1, 6) AS BIGINT) * 1000000000000 + CAST('0' || substr(two, 1, 6) AS BIGINT) * 1000000
                 + CAST('0' || substr(three, 1, 6) AS BIGINT)
    FROM third
)
SELECT f.id AS fileserver_id,
       CASE WHEN a.number < least_agent.number THEN 'agent ' || f.agent_version || ', the minimum is ' || :agent
            ELSE 'git ' || f.git_version || ', the minimum is ' || :git END AS reason,
       f.agent_version, f.git_version
  FROM fileservers f
  JOIN versions least_agent ON least_agent.text = :agent
  JOIN versions least_git ON least_git.text = :git
  LEFT JOIN versions a ON a.text = f.agent_version
  LEFT JOIN versions g ON g.text = f.git_version
 WHERE f.health <> 'offline' AND f.intent <> 'retire'
   AND (a.number < least_agent.number OR g.number < least_git.number);
