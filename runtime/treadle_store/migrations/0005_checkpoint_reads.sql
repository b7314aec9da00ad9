-- What an agent reads of checkpoints. A read locks nothing and always answers a row; `held` says whether the
-- capability was current.

SET LOCAL ROLE treadle_owner;

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
    treadle.get_checkpoint, treadle.list_checkpoints, treadle.get_delta_history, treadle.newest_checkpoint_id
TO treadle_agent;
