-- Copies whose agents journalled a version that the database does not know: it went back in time. Empty in a healthy
-- fleet; a row goes when a person has decided, or when the database is at that version again.
CREATE TABLE lost_histories (
    repository_id BIGINT NOT NULL,  -- which repository
    fileserver_id BIGINT NOT NULL,  -- where the copy stands
    version       BIGINT NOT NULL,  -- what its agent journalled
    since         BIGINT NOT NULL,  -- when that was seen first
    PRIMARY KEY (repository_id, fileserver_id)
);
