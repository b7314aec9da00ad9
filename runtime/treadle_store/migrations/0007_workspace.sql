-- The workspace plane for agents: content-addressed blobs, fenced manifests.
--
-- A blob is readable only through a thread_blobs row of one's own thread, and sending the bytes is the only way to
-- get such a row. Knowing a hash (they stand in Run statuses) gives nothing.

SET LOCAL ROLE treadle_owner;

CREATE FUNCTION treadle.put_blob(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_data bytea)
RETURNS TABLE (sha256 text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t treadle.threads := treadle.lock_thread(p_thread, p_run, p_token, p_key);
BEGIN
  IF t.thread_id IS NULL THEN
    RETURN;
  END IF;
  RETURN QUERY SELECT encode(treadle.store_blob(p_thread, p_data), 'hex');
END $$;

CREATE FUNCTION treadle.missing_blobs(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_sha256 text[])
RETURNS TABLE (held boolean, missing text[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT treadle.holds(p_thread, p_run, p_token, p_key) THEN
    RETURN QUERY SELECT false, NULL::text[];
    RETURN;
  END IF;
  RETURN QUERY
    SELECT true, coalesce(array_agg(DISTINCT h.hex), '{}')
      FROM unnest(p_sha256) h (hex)
     WHERE NOT EXISTS (SELECT 1 FROM treadle.thread_blobs b
                        WHERE b.thread_id = p_thread AND b.sha256 = treadle.hash_of(h.hex));
END $$;

CREATE FUNCTION treadle.get_blob(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_sha256 text)
RETURNS TABLE (held boolean, data bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT treadle.holds(p_thread, p_run, p_token, p_key) THEN
    RETURN QUERY SELECT false, NULL::bytea;
    RETURN;
  END IF;
  RETURN QUERY
    SELECT true, (SELECT b.data FROM treadle.thread_blobs tb JOIN treadle.blobs b ON b.sha256 = tb.sha256
                   WHERE tb.thread_id = p_thread AND tb.sha256 = treadle.hash_of(p_sha256));
END $$;

-- A manifest may name only files whose bytes this thread has sent, or nobody could restore it.
CREATE FUNCTION treadle.put_manifest(p_thread uuid, p_run text, p_token bigint, p_key bytea,
                                     p_entries jsonb, p_manifest uuid)
RETURNS TABLE (stored boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t       treadle.threads := treadle.lock_thread(p_thread, p_run, p_token, p_key);
  missing text;
BEGIN
  IF t.thread_id IS NULL THEN
    RETURN;
  END IF;
  IF p_entries IS NULL OR jsonb_typeof(p_entries) <> 'array' OR pg_column_size(p_entries) > 4194304 THEN
    PERFORM treadle.reject('ManifestInvalid', 'a manifest is a list of {path, sha256, size, mode, media_type}, at most 4 MB');
  END IF;
  SELECT coalesce(e.v ->> 'path', '(no path)') INTO missing
    FROM jsonb_array_elements(p_entries) e (v)
   WHERE (e.v ->> 'path') IS NULL
      OR NOT EXISTS (SELECT 1 FROM treadle.thread_blobs tb JOIN treadle.blobs b ON b.sha256 = tb.sha256
                      WHERE tb.thread_id = p_thread AND tb.sha256 = treadle.hash_of(e.v ->> 'sha256')
                        AND to_jsonb(b.size) = e.v -> 'size')
   LIMIT 1;
  IF FOUND THEN
    PERFORM treadle.reject('BlobMissing',
      format('manifest entry %s has no blob with this hash and size in the thread: put its blob first', missing));
  END IF;
  INSERT INTO treadle.workspace_manifests (thread_id, manifest_id, run_id, entries, token)
    VALUES (p_thread, p_manifest, p_run, p_entries, p_token) ON CONFLICT DO NOTHING;
  IF FOUND THEN  -- a repeated call must not move the head back over a later manifest
    UPDATE treadle.threads x SET head_manifest = p_manifest WHERE x.thread_id = p_thread;
    RETURN QUERY SELECT true;
  ELSE
    RETURN QUERY SELECT false;
  END IF;
END $$;

GRANT EXECUTE ON FUNCTION treadle.put_blob, treadle.missing_blobs, treadle.get_blob, treadle.put_manifest
TO treadle_agent;
