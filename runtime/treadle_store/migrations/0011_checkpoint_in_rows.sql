-- A checkpoint read as rows: its own first, then one for each value.
--
-- get_checkpoint gathers the values into arrays, and so unpacks and copies every one of them four times over before it
-- is sent. A value in a row of its own travels as a pointer until the moment of sending. get_checkpoint stays for
-- programs that are older than this.

SET LOCAL ROLE treadle_owner;

-- The named checkpoint, or the latest of the namespace where p_id is null. The first row tells whether the capability
-- was current, and the checkpoint if there is one. The others hold the values of its channels, then (with a task) its
-- pending writes in the order in which live execution applies them.
CREATE FUNCTION treadle.read_checkpoint(
    p_thread uuid, p_run text, p_token bigint, p_key bytea, p_ns text, p_id text
) RETURNS TABLE (
    held boolean, checkpoint_ns text, checkpoint_id text, parent_checkpoint_id text, token bigint,
    checkpoint text, metadata text, task text, channel text, type text, data bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_one treadle.checkpoints;
BEGIN
    held := treadle.holds(p_thread, p_run, p_token, p_key);
    IF held AND p_id IS NULL THEN
        SELECT * INTO found_one FROM treadle.checkpoints c
        WHERE c.thread_id = p_thread AND c.checkpoint_ns = p_ns
        ORDER BY c.token DESC, c.checkpoint_id DESC LIMIT 1;
    ELSIF held THEN
        SELECT * INTO found_one FROM treadle.checkpoints c
        WHERE c.thread_id = p_thread AND c.checkpoint_ns = p_ns AND c.checkpoint_id = p_id;
    END IF;
    checkpoint_ns := found_one.checkpoint_ns;
    checkpoint_id := found_one.checkpoint_id;
    parent_checkpoint_id := found_one.parent_checkpoint_id;
    token := found_one.token;
    checkpoint := found_one.checkpoint;
    metadata := found_one.metadata;
    RETURN NEXT;
    IF found_one.checkpoint_id IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT true, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::text,
        NULL::text, b.channel, b.type, b.blob
    FROM jsonb_each_text(found_one.checkpoint -> 'channel_versions') v
    JOIN treadle.checkpoint_blobs b
        ON b.thread_id = p_thread AND b.checkpoint_ns = p_ns AND b.channel = v.key AND b.version = v.value;
    RETURN QUERY
    SELECT true, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::text,
        w.task_id, w.channel, w.type, w.blob
    FROM treadle.checkpoint_writes w
    WHERE w.thread_id = p_thread AND w.checkpoint_ns = p_ns AND w.checkpoint_id = found_one.checkpoint_id
    ORDER BY w.task_path, w.task_id, w.idx;
END $$;

GRANT EXECUTE ON FUNCTION treadle.read_checkpoint TO treadle_agent;
