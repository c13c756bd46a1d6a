-- Draining, and the right to stop fileservers.

-- Since when it is being emptied, and what it held then; NULL: nobody asked for that.
ALTER TABLE fileservers ADD COLUMN drain_since BIGINT;
ALTER TABLE fileservers ADD COLUMN drain_replicas BIGINT;
-- Replicas it held when it was last looked, and since when it is as many: what does not shrink is stalled.
ALTER TABLE fileservers ADD COLUMN drain_left BIGINT;
ALTER TABLE fileservers ADD COLUMN drain_moved_at BIGINT;
-- When a person said that it will never return: its replicas are forgotten as others suffice.
ALTER TABLE fileservers ADD COLUMN lost_at BIGINT;

-- Fileservers that somebody was told may stop. Whoever asks meanwhile counts them as stopped.
CREATE TABLE stops (
    fileserver_id BIGINT PRIMARY KEY REFERENCES fileservers (id),
    until         BIGINT NOT NULL,  -- past it nobody counts it any more
    who           TEXT   NOT NULL,  -- who asked
    reason        TEXT              -- in that person's words
);
