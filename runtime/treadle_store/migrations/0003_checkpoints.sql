-- Checkpoints: LangGraph's three tables with the fencing token beside every row, and what the functions that touch
-- them share. Those stand in the next two files.

SET LOCAL ROLE treadle_owner;

CREATE TABLE treadle.checkpoints (
    thread_id            uuid   NOT NULL,
    checkpoint_ns        text   COLLATE "C" NOT NULL,
    checkpoint_id        text   COLLATE "C" NOT NULL,
    parent_checkpoint_id text   COLLATE "C",
    checkpoint           jsonb  NOT NULL,
    metadata             jsonb  NOT NULL,
    token                bigint NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
);
-- The latest checkpoint is the highest (token, checkpoint_id): ids alone follow the clock of whoever made them.
CREATE INDEX checkpoints_latest ON treadle.checkpoints (thread_id, checkpoint_ns, token, checkpoint_id);

CREATE TABLE treadle.checkpoint_blobs (
    thread_id     uuid NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    channel       text COLLATE "C" NOT NULL,
    version       text COLLATE "C" NOT NULL,
    type          text NOT NULL,
    blob          bytea NOT NULL,
    token         bigint NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, channel, version)
);

CREATE TABLE treadle.checkpoint_writes (
    thread_id     uuid NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    task_id       text COLLATE "C" NOT NULL,
    idx           int  NOT NULL,
    channel       text COLLATE "C" NOT NULL,
    type          text NOT NULL,
    blob          bytea NOT NULL,
    task_path     text COLLATE "C" NOT NULL,
    token         bigint NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
);

-- Postgres' own pglz spends more time on a long conversation than everything else together (33 ms a step
-- against 14 at 1000 messages); a server built without lz4 keeps it.
DO $$
BEGIN
    ALTER TABLE treadle.checkpoint_blobs ALTER COLUMN blob SET COMPRESSION lz4;
    ALTER TABLE treadle.checkpoint_writes ALTER COLUMN blob SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    RAISE NOTICE 'this server has no lz4: checkpoint blobs are compressed with pglz';
END $$;


-- ---------- what the functions below share; callable by nobody else ----------

-- A repeated put changes neither the row's token nor its place in the history.
CREATE FUNCTION treadle.store_checkpoints(
    p_thread uuid, p_token bigint,
    p_ns text[], p_id text[], p_parent text[], p_checkpoint text[], p_metadata text[],
    p_blob_ns text[], p_blob_channel text[], p_blob_version text[], p_blob_type text[], p_blob bytea[]
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(p_blob) > 0 THEN
        INSERT INTO treadle.checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob, token)
        SELECT p_thread, u.ns, u.channel, u.version, u.type, u.blob, p_token
        FROM unnest(p_blob_ns, p_blob_channel, p_blob_version, p_blob_type, p_blob)
            AS u(ns, channel, version, type, blob)
        ON CONFLICT DO NOTHING;
    END IF;
    FOR i IN 1 .. cardinality(p_id) LOOP  -- one by one: a statement may hold one id twice, the later wins
        INSERT INTO treadle.checkpoints
            (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata, token)
        VALUES (p_thread, p_ns[i], p_id[i], p_parent[i], p_checkpoint[i]::jsonb, p_metadata[i]::jsonb, p_token)
        ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO UPDATE
            SET checkpoint = excluded.checkpoint, metadata = excluded.metadata;
    END LOOP;
END $$;

-- An ordinary write is never replaced; one of the special channels (negative idx) always is, the last wins.
CREATE FUNCTION treadle.store_writes(
    p_thread uuid, p_token bigint,
    p_ns text[], p_checkpoint text[], p_task text[], p_path text[], p_idx int[],
    p_channel text[], p_type text[], p_blob bytea[]
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO treadle.checkpoint_writes
        (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path, token)
    SELECT p_thread, u.ns, u.checkpoint, u.task, u.idx, u.channel, u.type, u.blob, u.path, p_token
    FROM unnest(p_ns, p_checkpoint, p_task, p_path, p_idx, p_channel, p_type, p_blob)
        AS u(ns, checkpoint, task, path, idx, channel, type, blob)
    WHERE u.idx >= 0
    ON CONFLICT DO NOTHING;
    IF 0 > ANY (p_idx) THEN
        INSERT INTO treadle.checkpoint_writes
            (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path, token)
        SELECT DISTINCT ON (u.ns, u.checkpoint, u.task, u.idx)
            p_thread, u.ns, u.checkpoint, u.task, u.idx, u.channel, u.type, u.blob, u.path, p_token
        FROM unnest(p_ns, p_checkpoint, p_task, p_path, p_idx, p_channel, p_type, p_blob) WITH ORDINALITY
            AS u(ns, checkpoint, task, path, idx, channel, type, blob, position)
        WHERE u.idx < 0
        ORDER BY u.ns, u.checkpoint, u.task, u.idx, u.position DESC
        ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE
            SET channel = excluded.channel, type = excluded.type, blob = excluded.blob,
                task_path = excluded.task_path, token = excluded.token;
    END IF;
END $$;

-- Those of the channels whose value is stored neither in this checkpoint nor as a blob of its version: the
-- delta channels that must be replayed from an older one.
CREATE FUNCTION treadle.unstored_channels(p_thread uuid, p_ns text, p_checkpoint jsonb, p_channels text[])
RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(u.channel), '{}') FROM unnest(p_channels) AS u(channel)
    WHERE NOT coalesce(p_checkpoint -> 'channel_values' ? u.channel, false)
      AND NOT EXISTS (
        SELECT FROM treadle.checkpoint_blobs b
        WHERE b.thread_id = p_thread AND b.checkpoint_ns = p_ns AND b.channel = u.channel
          AND b.version = p_checkpoint -> 'channel_versions' ->> u.channel)
$$;

-- Removes the blobs that no checkpoint of the thread refers to any more.
CREATE FUNCTION treadle.sweep_blobs(p_thread uuid) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM treadle.checkpoint_blobs b
    USING (
        SELECT x.checkpoint_ns, x.channel, x.version FROM treadle.checkpoint_blobs x WHERE x.thread_id = p_thread
        EXCEPT
        SELECT c.checkpoint_ns, v.key, v.value
        FROM treadle.checkpoints c, jsonb_each_text(c.checkpoint -> 'channel_versions') v
        WHERE c.thread_id = p_thread
    ) gone
    WHERE b.thread_id = p_thread AND b.checkpoint_ns = gone.checkpoint_ns
      AND b.channel = gone.channel AND b.version = gone.version
$$;
