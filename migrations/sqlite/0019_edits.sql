-- An edit of a goal that never comes to an end gives way to the version before it, in every controller and through a
-- restart of the others; and one that came to its end somewhere never does.
ALTER TABLE goal_states ADD COLUMN ended TEXT;
ALTER TABLE goal_states ADD COLUMN gave_way TEXT;
ALTER TABLE goal_states ADD COLUMN gave_way_at BIGINT;
