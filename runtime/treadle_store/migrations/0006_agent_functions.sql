-- What an agent may do: everything through a capability (thread_id, run_id, token, fence_key).
--
-- A fenced write that answers no row was refused: the capability is not current (StaleToken). Reads lock nothing
-- and always answer a row whose `held` says whether the capability was current.

SET LOCAL ROLE treadle_owner;

-- The one way in (10-agent-pods): gives the pod, and only it, the current attempt of its run. Repeatable until
-- another pod has claimed the attempt, or the attempt was replaced, parked or settled.
CREATE FUNCTION treadle.take_assignment(p_pod_key text, p_pod_uid text)
RETURNS TABLE (thread_id uuid, run_id text, token bigint, fence_key bytea, namespace text, run_name text,
               thread_key text, attempt integer, log text, config jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM treadle.require_incarnation();
  RETURN QUERY
    SELECT t.thread_id, r.run_id, t.fencing_token, t.fence_key, r.namespace, r.name, t.thread_key, r.attempt,
           treadle.log_name(t), r.config
      FROM treadle.agent_pods p
      JOIN treadle.runs r ON r.run_id = p.run_id AND r.attempt = p.attempt
      JOIN treadle.threads t ON t.thread_id = r.thread_id
     WHERE p.key_hash = sha256(convert_to(p_pod_key, 'UTF8'))
       AND r.status IN ('assigned', 'running')
       AND t.active_run = r.run_id AND t.fencing_token = r.token
       AND (t.holder IS NULL OR split_part(t.holder, '/', 1) = p_pod_uid);
END $$;

CREATE FUNCTION treadle.claim_run(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_pod_uid text, p_nonce text)
RETURNS TABLE (head_checkpoint text, head_seq bigint, input jsonb, files jsonb, manifest jsonb, manifest_run text,
               baseline jsonb, cancel text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t    treadle.threads := treadle.lock_thread(p_thread, p_run, p_token, p_key);
  mine text := p_pod_uid || '/' || p_nonce;
BEGIN
  IF t.thread_id IS NULL OR t.holder IS NOT NULL AND t.holder <> mine THEN
    RETURN;
  END IF;
  IF mine IS NULL OR length(mine) > 200 OR p_pod_uid = '' OR p_nonce = '' OR strpos(p_pod_uid, '/') > 0 THEN
    PERFORM treadle.reject('HolderInvalid', 'a claim names the pod uid and a nonce, together at most 200 characters');
  END IF;
  UPDATE treadle.runs r SET status = 'running', started_at = coalesce(r.started_at, clock_timestamp())
   WHERE r.run_id = p_run AND r.status IN ('assigned', 'running');
  IF NOT FOUND THEN
    RETURN;
  END IF;
  UPDATE treadle.threads x SET holder = mine WHERE x.thread_id = p_thread;
  UPDATE treadle.run_attempts a SET pod_uid = p_pod_uid, last_seen = clock_timestamp()
   WHERE a.run_id = p_run AND a.token = p_token;
  RETURN QUERY
    SELECT (SELECT c.checkpoint_id FROM treadle.checkpoints c
             WHERE c.thread_id = p_thread AND c.checkpoint_ns = '' ORDER BY c.token DESC, c.checkpoint_id DESC LIMIT 1),
           t.head_seq, r.input, r.files, m.entries, m.run_id, coalesce(b.entries, '[]'), r.cancel_action
      FROM treadle.runs r
      LEFT JOIN treadle.workspace_manifests m ON m.thread_id = p_thread AND m.manifest_id = t.head_manifest
      LEFT JOIN treadle.workspace_manifests b ON b.thread_id = p_thread AND b.manifest_id = r.baseline_manifest
     WHERE r.run_id = p_run;
END $$;

CREATE FUNCTION treadle.heartbeat(p_thread uuid, p_run text, p_token bigint, p_key bytea)
RETURNS TABLE (cancel text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t treadle.threads := treadle.lock_thread(p_thread, p_run, p_token, p_key);
BEGIN
  IF t.thread_id IS NULL THEN
    RETURN;
  END IF;
  UPDATE treadle.run_attempts a SET last_seen = clock_timestamp() WHERE a.run_id = p_run AND a.token = p_token;
  RETURN QUERY SELECT r.cancel_action FROM treadle.runs r WHERE r.run_id = p_run;
END $$;

CREATE FUNCTION treadle.append_events(p_thread uuid, p_run text, p_token bigint, p_key bytea,
                                      p_events jsonb, p_retry boolean)
RETURNS TABLE (first_seq bigint, last_seq bigint, added integer, cancel text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t treadle.threads := treadle.lock_thread(p_thread, p_run, p_token, p_key);
BEGIN
  IF t.thread_id IS NULL THEN
    RETURN;
  END IF;
  RETURN QUERY
    SELECT w.first_seq, w.last_seq, w.added, (SELECT r.cancel_action FROM treadle.runs r WHERE r.run_id = p_run)
      FROM treadle.append_locked(t, p_run, p_events, p_retry) w;
END $$;

-- The point of no return against cancel: whichever of the two commits first wins, the other reads the result.
CREATE FUNCTION treadle.begin_finalizing(p_thread uuid, p_run text, p_token bigint, p_key bytea)
RETURNS TABLE (status text, cancel text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t treadle.threads := treadle.lock_thread(p_thread, p_run, p_token, p_key);
BEGIN
  IF t.thread_id IS NULL THEN
    RETURN;
  END IF;
  UPDATE treadle.runs r SET status = 'finalizing'
   WHERE r.run_id = p_run AND (r.status = 'finalizing' OR r.status = 'running' AND r.cancel_action IS NULL);
  RETURN QUERY SELECT r.status, r.cancel_action FROM treadle.runs r WHERE r.run_id = p_run;
END $$;

-- The one statement that ends a run. `already`: an earlier call of this attempt committed and its acknowledgement
-- was lost, proven by the attempt's key hash. `cancel_won`: an accepted cancel allows no other outcome.
CREATE FUNCTION treadle.settle_run(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_outcome text,
                                   p_end jsonb, p_receipt jsonb, p_end_id uuid, p_delivery_id uuid)
RETURNS TABLE (result text, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t       treadle.threads := treadle.lock_thread(p_thread, p_run, p_token, p_key);
  r       treadle.runs;
  missing text;
BEGIN
  IF t.thread_id IS NULL THEN
    RETURN QUERY
      SELECT 'already', x.status
        FROM treadle.run_attempts a
        JOIN treadle.runs x ON x.run_id = a.run_id AND x.thread_id = p_thread
        JOIN treadle.receipts q ON q.run_id = a.run_id AND q.kind = 'run.delivery' AND q.token = a.token
       WHERE a.run_id = p_run AND a.token = p_token AND a.key_hash = sha256(p_key);
    RETURN;
  END IF;
  SELECT * INTO r FROM treadle.runs x WHERE x.run_id = p_run FOR NO KEY UPDATE;
  IF r.status NOT IN ('running', 'finalizing')
     OR r.status = 'running' AND r.cancel_action IS NOT NULL AND p_outcome <> 'cancelled' THEN
    RETURN QUERY SELECT CASE WHEN r.cancel_action IS NULL THEN 'not_running' ELSE 'cancel_won' END, r.status;
    RETURN;
  END IF;
  IF jsonb_typeof(p_receipt -> 'artifacts') NOT IN ('array', 'null') THEN
    PERFORM treadle.reject('ReceiptInvalid', 'artifacts of a receipt is a list of {path, sha256, bytes, media_type}');
  END IF;
  -- The receipt's files must be there, with these bytes: we hashed them ourselves.
  SELECT a.v ->> 'path' INTO missing
    FROM jsonb_array_elements(coalesce(nullif(p_receipt -> 'artifacts', 'null'), '[]')) a (v)
   WHERE NOT EXISTS (
     SELECT 1 FROM treadle.thread_blobs tb JOIN treadle.blobs b ON b.sha256 = tb.sha256
      WHERE tb.thread_id = p_thread AND tb.sha256 = treadle.hash_of(a.v ->> 'sha256')
        AND to_jsonb(b.size) = a.v -> 'bytes')
   LIMIT 1;
  IF FOUND THEN
    PERFORM treadle.reject('ArtifactMissing',
      format('presented file %s is not in the store with this hash and size: put its blob first', missing));
  END IF;
  PERFORM treadle.close_run(t, r, p_outcome, p_end, p_receipt, p_end_id, p_delivery_id);
  RETURN QUERY SELECT 'settled', p_outcome;
END $$;

GRANT EXECUTE ON FUNCTION
  treadle.take_assignment, treadle.claim_run, treadle.heartbeat, treadle.append_events, treadle.begin_finalizing,
  treadle.settle_run
TO treadle_agent;
