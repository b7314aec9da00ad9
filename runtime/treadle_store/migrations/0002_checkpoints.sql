-- Checkpoints: LangGraph's three tables with the fencing token beside every row, and the only functions that
-- touch them. A write locks the thread row with the capability in the predicate and answers no row where that
-- is not current; a read locks nothing and always answers a row whose `held` says so.

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


-- ---------- writes of the agent ----------

CREATE FUNCTION treadle.put_checkpoint(
    p_thread uuid, p_run text, p_token bigint, p_key bytea,
    p_ns text, p_id text, p_parent text, p_checkpoint text, p_metadata text,
    p_blob_channel text[], p_blob_version text[], p_blob_type text[], p_blob bytea[]
) RETURNS TABLE (done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (treadle.lock_thread(p_thread, p_run, p_token, p_key)).thread_id IS NULL THEN
        RETURN;
    END IF;
    PERFORM treadle.store_checkpoints(p_thread, p_token,
        ARRAY[p_ns], ARRAY[p_id], ARRAY[p_parent], ARRAY[p_checkpoint], ARRAY[p_metadata],
        array_fill(p_ns, ARRAY[cardinality(p_blob)]), p_blob_channel, p_blob_version, p_blob_type, p_blob);
    RETURN QUERY SELECT true;
END $$;

CREATE FUNCTION treadle.put_writes(
    p_thread uuid, p_run text, p_token bigint, p_key bytea,
    p_ns text[], p_checkpoint text[], p_task text[], p_path text[], p_idx int[],
    p_channel text[], p_type text[], p_blob bytea[]
) RETURNS TABLE (done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (treadle.lock_thread(p_thread, p_run, p_token, p_key)).thread_id IS NULL THEN
        RETURN;
    END IF;
    PERFORM treadle.store_writes(
        p_thread, p_token, p_ns, p_checkpoint, p_task, p_path, p_idx, p_channel, p_type, p_blob);
    RETURN QUERY SELECT true;
END $$;

-- A whole step in one statement and one commit: events, pending writes and any number of checkpoints. With
-- p_retry the statement may have been committed before: events that are there are left out, the rest is
-- idempotent by its keys.
CREATE FUNCTION treadle.commit_step(
    p_thread uuid, p_run text, p_token bigint, p_key bytea, p_events jsonb, p_retry boolean,
    p_write_ns text[], p_write_checkpoint text[], p_write_task text[], p_write_path text[], p_write_idx int[],
    p_write_channel text[], p_write_type text[], p_write_blob bytea[],
    p_ns text[], p_id text[], p_parent text[], p_checkpoint text[], p_metadata text[],
    p_blob_ns text[], p_blob_channel text[], p_blob_version text[], p_blob_type text[], p_blob bytea[]
) RETURNS TABLE (first_seq bigint, last_seq bigint, added int, cancel text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t treadle.threads := treadle.lock_thread(p_thread, p_run, p_token, p_key);
BEGIN
    IF t.thread_id IS NULL THEN
        RETURN;
    END IF;
    first_seq := t.head_seq + 1;
    last_seq := t.head_seq;
    added := 0;
    IF p_events <> '[]' THEN
        SELECT a.first_seq, a.last_seq, a.added INTO first_seq, last_seq, added
        FROM treadle.append_locked(t, p_run, p_events, p_retry) a;
    END IF;
    IF cardinality(p_write_idx) > 0 THEN
        PERFORM treadle.store_writes(p_thread, p_token, p_write_ns, p_write_checkpoint, p_write_task,
            p_write_path, p_write_idx, p_write_channel, p_write_type, p_write_blob);
    END IF;
    IF cardinality(p_id) > 0 THEN
        PERFORM treadle.store_checkpoints(p_thread, p_token, p_ns, p_id, p_parent, p_checkpoint, p_metadata,
            p_blob_ns, p_blob_channel, p_blob_version, p_blob_type, p_blob);
    END IF;
    SELECT r.cancel_action INTO cancel FROM treadle.runs r WHERE r.run_id = p_run;
    RETURN NEXT;
END $$;

CREATE FUNCTION treadle.delete_thread_checkpoints(p_thread uuid, p_run text, p_token bigint, p_key bytea)
RETURNS TABLE (done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (treadle.lock_thread(p_thread, p_run, p_token, p_key)).thread_id IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM treadle.checkpoints c WHERE c.thread_id = p_thread;
    DELETE FROM treadle.checkpoint_blobs b WHERE b.thread_id = p_thread;
    DELETE FROM treadle.checkpoint_writes w WHERE w.thread_id = p_thread;
    RETURN QUERY SELECT true;
END $$;

-- Deletes what the named runs left on this thread. Not to be used on a delta thread that lives on: what its
-- head replays from may be among them.
CREATE FUNCTION treadle.delete_checkpoints_of_runs(
    p_thread uuid, p_run text, p_token bigint, p_key bytea, p_runs text[]
) RETURNS TABLE (done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (treadle.lock_thread(p_thread, p_run, p_token, p_key)).thread_id IS NULL THEN
        RETURN;
    END IF;
    WITH gone AS (
        DELETE FROM treadle.checkpoints c WHERE c.thread_id = p_thread AND c.metadata ->> 'run_id' = ANY (p_runs)
        RETURNING c.checkpoint_ns, c.checkpoint_id)
    DELETE FROM treadle.checkpoint_writes w USING gone
    WHERE w.thread_id = p_thread AND w.checkpoint_ns = gone.checkpoint_ns AND w.checkpoint_id = gone.checkpoint_id;
    PERFORM treadle.sweep_blobs(p_thread);
    RETURN QUERY SELECT true;
END $$;

-- Keeps the latest checkpoint of every namespace and its ancestors down to the stored value of each of its
-- delta channels.
CREATE FUNCTION treadle.prune_checkpoints(p_thread uuid, p_run text, p_token bigint, p_key bytea)
RETURNS TABLE (done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (treadle.lock_thread(p_thread, p_run, p_token, p_key)).thread_id IS NULL THEN
        RETURN;
    END IF;
    WITH RECURSIVE heads AS (
        SELECT DISTINCT ON (c.checkpoint_ns) c.*
        FROM treadle.checkpoints c WHERE c.thread_id = p_thread
        ORDER BY c.checkpoint_ns, c.token DESC, c.checkpoint_id DESC
    ), kept AS (
        SELECT h.checkpoint_ns, h.checkpoint_id, h.parent_checkpoint_id,
            treadle.unstored_channels(p_thread, h.checkpoint_ns, h.checkpoint,
                ARRAY(SELECT jsonb_object_keys(h.metadata -> 'counters_since_delta_snapshot'))) AS wanted
        FROM heads h
        UNION ALL
        SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id,
            treadle.unstored_channels(p_thread, c.checkpoint_ns, c.checkpoint, k.wanted)
        FROM kept k JOIN treadle.checkpoints c
            ON c.thread_id = p_thread AND c.checkpoint_ns = k.checkpoint_ns
            AND c.checkpoint_id = k.parent_checkpoint_id
        WHERE cardinality(k.wanted) > 0
    ), gone AS (
        DELETE FROM treadle.checkpoints c
        WHERE c.thread_id = p_thread
          AND (c.checkpoint_ns, c.checkpoint_id) NOT IN (SELECT k.checkpoint_ns, k.checkpoint_id FROM kept k)
        RETURNING c.checkpoint_ns, c.checkpoint_id
    )
    DELETE FROM treadle.checkpoint_writes w USING gone
    WHERE w.thread_id = p_thread AND w.checkpoint_ns = gone.checkpoint_ns AND w.checkpoint_id = gone.checkpoint_id;
    PERFORM treadle.sweep_blobs(p_thread);
    RETURN QUERY SELECT true;
END $$;

-- Copies everything of one thread to another, which must have no checkpoint of these ids. The caller holds
-- both threads; the copies carry the target's token, since they are written by its holder.
CREATE FUNCTION treadle.copy_checkpoints(
    p_thread uuid, p_run text, p_token bigint, p_key bytea,
    p_source uuid, p_source_run text, p_source_token bigint, p_source_key bytea
) RETURNS TABLE (done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target treadle.threads;
    source treadle.threads;
BEGIN
    -- Locks of several threads are taken in the order of their ids, everywhere.
    IF p_thread < p_source THEN
        target := treadle.lock_thread(p_thread, p_run, p_token, p_key);
        source := treadle.lock_thread(p_source, p_source_run, p_source_token, p_source_key);
    ELSE
        source := treadle.lock_thread(p_source, p_source_run, p_source_token, p_source_key);
        target := treadle.lock_thread(p_thread, p_run, p_token, p_key);
    END IF;
    IF target.thread_id IS NULL OR source.thread_id IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO treadle.checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob, token)
    SELECT p_thread, b.checkpoint_ns, b.channel, b.version, b.type, b.blob, p_token
    FROM treadle.checkpoint_blobs b WHERE b.thread_id = p_source
    ON CONFLICT DO NOTHING;
    INSERT INTO treadle.checkpoints
        (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata, token)
    SELECT p_thread, c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.checkpoint, c.metadata, p_token
    FROM treadle.checkpoints c WHERE c.thread_id = p_source
    ON CONFLICT DO NOTHING;
    INSERT INTO treadle.checkpoint_writes
        (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path, token)
    SELECT p_thread, w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.channel, w.type, w.blob,
        w.task_path, p_token
    FROM treadle.checkpoint_writes w WHERE w.thread_id = p_source
    ON CONFLICT DO NOTHING;
    RETURN QUERY SELECT true;
END $$;


-- ---------- reads of the agent: no lock, always a row, `held` says whether the capability was valid ----------

CREATE FUNCTION treadle.blobs_of(p_thread uuid, p_ns text, p_checkpoint jsonb)
RETURNS TABLE (channels text[], types text[], data bytea[])
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(b.channel), '{}'), coalesce(array_agg(b.type), '{}'),
        coalesce(array_agg(b.blob), '{}')
    FROM jsonb_each_text(p_checkpoint -> 'channel_versions') v
    JOIN treadle.checkpoint_blobs b
        ON b.thread_id = p_thread AND b.checkpoint_ns = p_ns AND b.channel = v.key AND b.version = v.value
$$;

-- In the order in which live execution applies them; a delta channel's replay depends on it.
CREATE FUNCTION treadle.writes_of(p_thread uuid, p_ns text, p_id text)
RETURNS TABLE (tasks text[], channels text[], types text[], data bytea[])
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(w.task_id), '{}'), coalesce(array_agg(w.channel), '{}'),
        coalesce(array_agg(w.type), '{}'), coalesce(array_agg(w.blob), '{}')
    FROM (
        SELECT * FROM treadle.checkpoint_writes x
        WHERE x.thread_id = p_thread AND x.checkpoint_ns = p_ns AND x.checkpoint_id = p_id
        ORDER BY x.task_path, x.task_id, x.idx
    ) w
$$;

-- The named checkpoint, or the latest of the namespace where p_id is null.
CREATE FUNCTION treadle.get_checkpoint(
    p_thread uuid, p_run text, p_token bigint, p_key bytea, p_ns text, p_id text
) RETURNS TABLE (
    held boolean, checkpoint_ns text, checkpoint_id text, parent_checkpoint_id text, token bigint,
    checkpoint text, metadata text, blob_channels text[], blob_types text[], blobs bytea[],
    write_tasks text[], write_channels text[], write_types text[], write_blobs bytea[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_one treadle.checkpoints;
BEGIN
    IF NOT treadle.holds(p_thread, p_run, p_token, p_key) THEN
        held := false;
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_id IS NULL THEN
        SELECT * INTO found_one FROM treadle.checkpoints c
        WHERE c.thread_id = p_thread AND c.checkpoint_ns = p_ns
        ORDER BY c.token DESC, c.checkpoint_id DESC LIMIT 1;
    ELSE
        SELECT * INTO found_one FROM treadle.checkpoints c
        WHERE c.thread_id = p_thread AND c.checkpoint_ns = p_ns AND c.checkpoint_id = p_id;
    END IF;
    RETURN QUERY SELECT true, found_one.checkpoint_ns, found_one.checkpoint_id,
        found_one.parent_checkpoint_id, found_one.token, found_one.checkpoint::text, found_one.metadata::text,
        b.channels, b.types, b.data, w.tasks, w.channels, w.types, w.data
    FROM treadle.blobs_of(p_thread, p_ns, found_one.checkpoint) b,
        treadle.writes_of(p_thread, p_ns, found_one.checkpoint_id) w;
END $$;

-- A page of the history, newest first, in one namespace or (p_ns null) in all. p_before: only what is older
-- than this checkpoint, which may stand in another namespace. p_after_*: the last row of the page before.
-- The filters are optional: a plan made for the values at hand finds the index, a general one does not.
CREATE FUNCTION treadle.list_checkpoints(
    p_thread uuid, p_run text, p_token bigint, p_key bytea,
    p_ns text, p_id text, p_filter text, p_before text,
    p_after_token bigint, p_after_id text, p_after_ns text, p_limit int
) RETURNS TABLE (
    held boolean, checkpoint_ns text, checkpoint_id text, parent_checkpoint_id text, token bigint,
    checkpoint text, metadata text, blob_channels text[], blob_types text[], blobs bytea[],
    write_tasks text[], write_channels text[], write_types text[], write_blobs bytea[])
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    before_token bigint;
BEGIN
    IF NOT treadle.holds(p_thread, p_run, p_token, p_key) THEN
        held := false;
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_before IS NOT NULL THEN
        SELECT c.token INTO before_token FROM treadle.checkpoints c
        WHERE c.thread_id = p_thread AND c.checkpoint_id = p_before
        ORDER BY (c.checkpoint_ns = p_ns) DESC LIMIT 1;
        -- An id that is not there still has a place: ids of one token grow.
        before_token := coalesce(before_token, p_token);
    END IF;
    RETURN QUERY
    SELECT true, page.checkpoint_ns, page.checkpoint_id, page.parent_checkpoint_id, page.token,
        page.checkpoint::text, page.metadata::text,
        b.channels, b.types, b.data, w.tasks, w.channels, w.types, w.data
    FROM (
        SELECT * FROM treadle.checkpoints c
        WHERE c.thread_id = p_thread
          AND (p_ns IS NULL OR c.checkpoint_ns = p_ns)
          AND (p_id IS NULL OR c.checkpoint_id = p_id)
          AND (p_filter IS NULL OR c.metadata @> p_filter::jsonb)
          AND (p_before IS NULL OR (c.token, c.checkpoint_id) < (before_token, p_before))
          AND (p_after_id IS NULL
               OR (c.token, c.checkpoint_id, c.checkpoint_ns) < (p_after_token, p_after_id, p_after_ns))
        ORDER BY c.token DESC, c.checkpoint_id DESC, c.checkpoint_ns DESC
        LIMIT p_limit
    ) page,
    LATERAL treadle.blobs_of(p_thread, page.checkpoint_ns, page.checkpoint) b,
    LATERAL treadle.writes_of(p_thread, page.checkpoint_ns, page.checkpoint_id) w
    ORDER BY page.token DESC, page.checkpoint_id DESC, page.checkpoint_ns DESC;
    IF NOT FOUND THEN
        held := true;
        RETURN NEXT;
    END IF;
END $$;

-- What the given channels of a checkpoint are replayed from: the writes of its ancestors along the parent
-- pointers, oldest first, down to the nearest ancestor that stores the channel's value (the seed). The
-- checkpoint's own pending writes belong to the next superstep and are not among them.
CREATE FUNCTION treadle.get_delta_history(
    p_thread uuid, p_run text, p_token bigint, p_key bytea, p_ns text, p_id text, p_channels text[]
) RETURNS TABLE (
    held boolean, inline_seeds text, seed_channels text[], seed_types text[], seeds bytea[],
    write_tasks text[], write_channels text[], write_types text[], write_blobs bytea[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    start_id text;
BEGIN
    IF NOT treadle.holds(p_thread, p_run, p_token, p_key) THEN
        held := false;
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_id IS NULL THEN
        SELECT c.parent_checkpoint_id INTO start_id FROM treadle.checkpoints c
        WHERE c.thread_id = p_thread AND c.checkpoint_ns = p_ns
        ORDER BY c.token DESC, c.checkpoint_id DESC LIMIT 1;
    ELSE
        SELECT c.parent_checkpoint_id INTO start_id FROM treadle.checkpoints c
        WHERE c.thread_id = p_thread AND c.checkpoint_ns = p_ns AND c.checkpoint_id = p_id;
    END IF;
    RETURN QUERY
    WITH RECURSIVE walk AS (
        SELECT 1 AS depth, c.checkpoint_id, c.parent_checkpoint_id, c.checkpoint, p_channels AS wanted,
            treadle.unstored_channels(p_thread, p_ns, c.checkpoint, p_channels) AS unstored
        FROM treadle.checkpoints c
        WHERE c.thread_id = p_thread AND c.checkpoint_ns = p_ns AND c.checkpoint_id = start_id
        UNION ALL
        SELECT k.depth + 1, c.checkpoint_id, c.parent_checkpoint_id, c.checkpoint, k.unstored,
            treadle.unstored_channels(p_thread, p_ns, c.checkpoint, k.unstored)
        FROM walk k JOIN treadle.checkpoints c
            ON c.thread_id = p_thread AND c.checkpoint_ns = p_ns AND c.checkpoint_id = k.parent_checkpoint_id
        WHERE cardinality(k.unstored) > 0
    ), found_seed AS (
        SELECT u.channel, k.checkpoint, b.type, b.blob
        FROM walk k CROSS JOIN LATERAL unnest(k.wanted) AS u(channel)
        LEFT JOIN treadle.checkpoint_blobs b
            ON b.thread_id = p_thread AND b.checkpoint_ns = p_ns AND b.channel = u.channel
            AND b.version = k.checkpoint -> 'channel_versions' ->> u.channel
        WHERE u.channel <> ALL (k.unstored)
    ), replayed AS (
        SELECT w.task_id, w.channel, w.type, w.blob
        FROM walk k JOIN treadle.checkpoint_writes w
            ON w.thread_id = p_thread AND w.checkpoint_ns = p_ns AND w.checkpoint_id = k.checkpoint_id
            AND w.channel = ANY (k.wanted)
        ORDER BY k.depth DESC, w.task_path, w.task_id, w.idx
    )
    SELECT true,
        (SELECT coalesce(jsonb_object_agg(s.channel, s.checkpoint -> 'channel_values' -> s.channel), '{}')::text
         FROM found_seed s WHERE s.blob IS NULL),
        s.channels, s.types, s.data, r.tasks, r.channels, r.types, r.data
    FROM (
        SELECT coalesce(array_agg(f.channel), '{}') AS channels, coalesce(array_agg(f.type), '{}') AS types,
            coalesce(array_agg(f.blob), '{}') AS data
        FROM found_seed f WHERE f.blob IS NOT NULL
    ) s, (
        SELECT coalesce(array_agg(x.task_id), '{}') AS tasks, coalesce(array_agg(x.channel), '{}') AS channels,
            coalesce(array_agg(x.type), '{}') AS types, coalesce(array_agg(x.blob), '{}') AS data
        FROM replayed x
    ) r;
END $$;

-- The highest checkpoint id of the thread in any namespace: a new attempt's ids start above it.
CREATE FUNCTION treadle.newest_checkpoint_id(p_thread uuid, p_run text, p_token bigint, p_key bytea)
RETURNS TABLE (held boolean, checkpoint_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT h.held, (SELECT max(c.checkpoint_id) FROM treadle.checkpoints c WHERE h.held AND c.thread_id = p_thread)
    FROM (SELECT treadle.holds(p_thread, p_run, p_token, p_key) AS held) h
$$;

GRANT EXECUTE ON FUNCTION
    treadle.commit_step, treadle.put_checkpoint, treadle.put_writes, treadle.get_checkpoint,
    treadle.list_checkpoints, treadle.get_delta_history, treadle.newest_checkpoint_id,
    treadle.delete_thread_checkpoints, treadle.delete_checkpoints_of_runs, treadle.prune_checkpoints,
    treadle.copy_checkpoints
TO treadle_agent;
