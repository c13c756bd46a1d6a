-- Wishes of people where no rule decides: what one copy has is to be definitive. A worker does it, and the row goes.
CREATE TABLE adoptions (
    repository_id BIGINT PRIMARY KEY,  -- which repository
    fileserver_id BIGINT NOT NULL,     -- where the copy stands
    wished_at     BIGINT NOT NULL      -- when
);
