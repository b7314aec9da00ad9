-- A step and the workspace as it is after the step, in one commit.
--
-- A tool changes files and its answer becomes a pending write. Were manifest and write two statements, a new attempt
-- could find the changed files without the answer and change them again, or the answer without the files.

SET LOCAL ROLE treadle_owner;

CREATE FUNCTION treadle.commit_step_with_manifest(
    p_thread uuid, p_run text, p_token bigint, p_key bytea, p_entries jsonb, p_manifest uuid,
    p_events jsonb, p_retry boolean,
    p_write_ns text[], p_write_checkpoint text[], p_write_task text[], p_write_path text[], p_write_idx int[],
    p_write_channel text[], p_write_type text[], p_write_blob bytea[],
    p_ns text[], p_id text[], p_parent text[], p_checkpoint text[], p_metadata text[],
    p_blob_ns text[], p_blob_channel text[], p_blob_version text[], p_blob_type text[], p_blob bytea[]
) RETURNS TABLE (first_seq bigint, last_seq bigint, added int, cancel text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- Both lock the thread row with the whole capability in the predicate; without it both write nothing.
  PERFORM treadle.put_manifest(p_thread, p_run, p_token, p_key, p_entries, p_manifest);
  RETURN QUERY SELECT * FROM treadle.commit_step(
    p_thread, p_run, p_token, p_key, p_events, p_retry,
    p_write_ns, p_write_checkpoint, p_write_task, p_write_path, p_write_idx, p_write_channel, p_write_type,
    p_write_blob, p_ns, p_id, p_parent, p_checkpoint, p_metadata,
    p_blob_ns, p_blob_channel, p_blob_version, p_blob_type, p_blob);
END $$;

GRANT EXECUTE ON FUNCTION treadle.commit_step_with_manifest TO treadle_agent;
