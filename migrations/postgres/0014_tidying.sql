-- What tidying knows of a copy: damage to its objects, what makes reading it cheap, where a begun one comes from.

-- What git found wrong with its objects, in its own words. While it is there the copy has no checksum and gets none:
-- it is made anew, for references alone cannot show that it is whole.
ALTER TABLE replicas ADD COLUMN damage TEXT;
-- Whether it has a bitmap and a commit-graph, as last counted.
ALTER TABLE replicas ADD COLUMN indexed BOOLEAN NOT NULL DEFAULT FALSE;
-- In state 'creating': the fileserver that it is copied from, so that a later attempt goes on from there.
ALTER TABLE replicas ADD COLUMN copied_from BIGINT;

-- Since when the objects of a copy are unchecked: one that was made was hashed and walked when it was.
CREATE INDEX replicas_by_scrubbed ON replicas (COALESCE(scrubbed_at, state_since));
-- Those that packing may help; the goal that uses it may ask for more, never for less.
CREATE INDEX replicas_unpacked ON replicas (repository_id, fileserver_id)
    WHERE packs > 20 OR loose > 2000 OR (bytes > 67108864 AND NOT indexed);

-- Locks of dead gits that the agent has removed since it was set up.
ALTER TABLE fileservers ADD COLUMN locks_removed BIGINT NOT NULL DEFAULT 0;
