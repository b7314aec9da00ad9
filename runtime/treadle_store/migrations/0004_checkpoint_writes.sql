-- What an agent writes of checkpoints. A write locks the thread row with the capability in the predicate and answers no
-- row where that is not current.

SET LOCAL ROLE treadle_owner;

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

GRANT EXECUTE ON FUNCTION
    treadle.commit_step, treadle.put_checkpoint, treadle.put_writes, treadle.delete_thread_checkpoints,
    treadle.delete_checkpoints_of_runs, treadle.prune_checkpoints, treadle.copy_checkpoints
TO treadle_agent;
