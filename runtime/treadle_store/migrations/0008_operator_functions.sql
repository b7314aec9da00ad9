-- What the operator may do. Each function is idempotent: repeated after a lost acknowledgement it has had one effect
-- and answers the same.

SET LOCAL ROLE treadle_owner;

-- Creates the thread's row, or returns it. A re-created object (same name) adopts the row; another name takes it only
-- with `p_adopt`, when the caller knows that the object which held it is gone. A retired row comes back with a higher
-- token and a new log.
CREATE FUNCTION treadle.register_thread(p_namespace text, p_thread_key text, p_name text, p_uid text, p_agent text,
                                        p_max_queued integer, p_adopt boolean)
RETURNS TABLE (thread_id uuid, namespace text, thread_key text, name text, uid text, agent text, max_queued integer,
               fencing_token bigint, active_run text, holder text, head_seq bigint, queued bigint, log text,
               retired boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t treadle.threads;
BEGIN
  PERFORM treadle.require_incarnation();
  INSERT INTO treadle.threads AS x (namespace, thread_key, name, uid, agent, max_queued)
    VALUES (p_namespace, p_thread_key, p_name, p_uid, p_agent, p_max_queued)
    ON CONFLICT DO NOTHING RETURNING * INTO t;
  IF NOT FOUND THEN
    SELECT * INTO STRICT t FROM treadle.threads x
     WHERE x.namespace = p_namespace AND x.thread_key = p_thread_key FOR NO KEY UPDATE;
    IF t.deleted_at IS NULL AND t.uid <> p_uid AND t.name <> p_name AND NOT p_adopt THEN
      PERFORM treadle.reject('ThreadIDConflict',
        format('threadID %s belongs to Thread %s: choose another threadID, or delete that Thread', p_thread_key, t.name));
    END IF;
    IF t.deleted_at IS NOT NULL THEN
      UPDATE treadle.threads x
         SET fencing_token = x.fencing_token + 1, fence_key = uuid_send(gen_random_uuid()),
             thread_gen = x.thread_gen + 1, active_run = NULL, holder = NULL, head_manifest = NULL, deleted_at = NULL,
             head_seq = 0, head_chain = '\x00000000000000000000000000000000'
       WHERE x.thread_id = t.thread_id;
    END IF;
    UPDATE treadle.threads x SET name = p_name, uid = p_uid, agent = p_agent, max_queued = p_max_queued
     WHERE x.thread_id = t.thread_id RETURNING * INTO t;
  END IF;
  RETURN QUERY
    SELECT t.thread_id, t.namespace, t.thread_key, t.name, t.uid, t.agent, t.max_queued, t.fencing_token, t.active_run,
           t.holder, t.head_seq, count(r.run_id), treadle.log_name(t), false
      FROM (VALUES (1)) one LEFT JOIN treadle.runs r ON r.thread_id = t.thread_id AND r.status = 'pending';
END $$;

CREATE FUNCTION treadle.admit_run(p_run text, p_namespace text, p_name text, p_thread uuid, p_spec_hash text,
                                  p_input jsonb, p_config jsonb, p_object_created timestamptz,
                                  p_files jsonb, p_data bytea[])
RETURNS TABLE (result text, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t       treadle.threads;
  waiting integer;
  entries jsonb;
BEGIN
  PERFORM treadle.require_incarnation();
  SELECT * INTO t FROM treadle.threads x
   WHERE x.thread_id = p_thread AND x.namespace = p_namespace AND x.deleted_at IS NULL FOR NO KEY UPDATE;
  RETURN QUERY SELECT 'exists', r.status FROM treadle.runs r WHERE r.run_id = p_run;
  IF FOUND THEN
    RETURN;
  END IF;
  IF t.thread_id IS NULL THEN
    RETURN QUERY SELECT 'thread_not_found', NULL::text;
    RETURN;
  END IF;
  SELECT count(*) INTO waiting FROM treadle.runs r WHERE r.thread_id = p_thread AND r.status = 'pending';
  IF (t.active_run IS NOT NULL OR waiting > 0) AND waiting >= t.max_queued THEN
    RETURN QUERY SELECT 'queue_full', NULL::text;
    RETURN;
  END IF;
  IF jsonb_array_length(p_files) > 64 OR pg_column_size(p_input) > 4194304 OR pg_column_size(p_config) > 4194304 THEN
    PERFORM treadle.reject('InputTooLarge', 'a run takes at most 64 files, 4 MB of input and 4 MB of configuration');
  END IF;
  SELECT coalesce(jsonb_agg(f.v || jsonb_build_object(
           'sha256', encode(treadle.store_blob(p_thread, d.data), 'hex'), 'size', octet_length(d.data)) ORDER BY f.n), '[]')
    INTO entries
    FROM jsonb_array_elements(p_files) WITH ORDINALITY f (v, n)
    JOIN unnest(p_data) WITH ORDINALITY d (data, n) ON d.n = f.n;
  INSERT INTO treadle.runs (run_id, thread_id, namespace, name, status, object_created, spec_hash, input, files, config)
    VALUES (p_run, p_thread, p_namespace, p_name, 'pending', p_object_created, p_spec_hash, p_input, entries, p_config);
  RETURN QUERY SELECT 'admitted', 'pending';
END $$;

-- One transaction, all or nothing (03-ownership, step 2). No row: the world is not as the caller saw it; look again.
-- Every older writer is dead when this commits, before a new pod exists.
CREATE FUNCTION treadle.assign_run(p_run text, p_attempt integer, p_expected bigint, p_pod text,
                                   p_class text, p_reason text, p_node text)
RETURNS TABLE (token bigint, fence_key bytea, pod_key text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t      treadle.threads;
  r      treadle.runs;
  secret text := replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '');
BEGIN
  PERFORM treadle.require_incarnation();
  SELECT x.* INTO t FROM treadle.threads x
   WHERE x.thread_id = (SELECT y.thread_id FROM treadle.runs y WHERE y.run_id = p_run) FOR NO KEY UPDATE;
  SELECT * INTO r FROM treadle.runs x WHERE x.run_id = p_run FOR NO KEY UPDATE;
  IF r.run_id IS NULL OR t.deleted_at IS NOT NULL THEN
    RETURN;
  END IF;
  IF r.attempt = p_attempt AND r.status = 'assigned' AND t.active_run = p_run AND t.fencing_token = r.token
     AND t.holder IS NULL THEN  -- the same call again, or an operator that crashed before the pod existed
    RETURN QUERY SELECT t.fencing_token, t.fence_key, p.pod_key FROM treadle.agent_pods p
                  WHERE p.namespace = r.namespace AND p.pod = p_pod AND p.run_id = p_run AND p.attempt = p_attempt;
    RETURN;
  END IF;
  IF t.fencing_token <> p_expected OR r.attempt <> p_attempt - 1
     OR r.status NOT IN ('pending', 'assigned', 'running', 'finalizing', 'parked')
     OR t.active_run IS DISTINCT FROM (CASE WHEN r.status <> 'pending' THEN p_run END)
     OR r.status = 'pending' AND EXISTS (
          SELECT 1 FROM treadle.runs o WHERE o.thread_id = t.thread_id AND o.status = 'pending'
             AND (o.object_created, o.run_id) < (r.object_created, r.run_id)) THEN
    RETURN;
  END IF;
  UPDATE treadle.run_attempts a SET ended = clock_timestamp(), class = p_class, reason = p_reason, node = p_node
   WHERE a.run_id = p_run AND a.ended IS NULL;
  UPDATE treadle.threads x
     SET fencing_token = x.fencing_token + 1, fence_key = uuid_send(gen_random_uuid()), active_run = p_run, holder = NULL
   WHERE x.thread_id = t.thread_id RETURNING * INTO t;
  UPDATE treadle.runs x
     SET status = 'assigned', attempt = p_attempt, token = t.fencing_token,
         baseline_manifest = CASE WHEN r.attempt = 0 THEN t.head_manifest ELSE x.baseline_manifest END
   WHERE x.run_id = p_run;
  INSERT INTO treadle.run_attempts (run_id, attempt, token, key_hash, pod)
    VALUES (p_run, p_attempt, t.fencing_token, sha256(t.fence_key), p_pod);
  DELETE FROM treadle.agent_pods p WHERE p.run_id = p_run OR p.namespace = r.namespace AND p.pod = p_pod;
  INSERT INTO treadle.agent_pods (namespace, pod, pod_key, key_hash, run_id, attempt)
    VALUES (r.namespace, p_pod, secret, sha256(convert_to(secret, 'UTF8')), p_run, p_attempt);
  RETURN QUERY SELECT t.fencing_token, t.fence_key, secret;
END $$;

-- Touches the run row alone, so that it never waits behind a frozen writer's thread lock. The first action wins.
CREATE FUNCTION treadle.request_cancel(p_run text, p_action text, p_reason text)
RETURNS TABLE (status text, cancel text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM treadle.require_incarnation();
  UPDATE treadle.runs r
     SET cancel_action = p_action, cancel_requested_at = clock_timestamp(), stop_reason = p_reason
   WHERE r.run_id = p_run AND r.cancel_action IS NULL AND r.status IN ('pending', 'assigned', 'running', 'parked');
  RETURN QUERY SELECT r.status, r.cancel_action FROM treadle.runs r WHERE r.run_id = p_run;
END $$;

-- The receipt of a run that no agent settles, with what the store knows of it.
CREATE FUNCTION treadle.orphan_receipt(r treadle.runs, p_reason text, p_message text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object(
    'checkpoint', (SELECT c.checkpoint_id FROM treadle.checkpoints c
                    WHERE r.attempt > 0 AND c.thread_id = r.thread_id AND c.checkpoint_ns = ''
                    ORDER BY c.token DESC, c.checkpoint_id DESC LIMIT 1),
    'message_id', NULL, 'summary', '', 'reason', p_reason, 'message', p_message,
    'produced', '[]'::jsonb, 'presented', '[]'::jsonb, 'matched', '[]'::jsonb, 'artifacts', '[]'::jsonb,
    'coverage', 'Unknown', 'requirement', coalesce(r.config #>> '{delivery,requirement}', 'None'),
    'journal_complete', r.attempt = 0, 'usage', r.usage, 'model', r.config #>> '{model,name}')
$$;

-- Ends a run in its agent's place, under a new token: whoever held it writes nothing afterwards. `already`: it has
-- ended, with this outcome. No row: the token moved on; look again. A pending run has no writer and needs no token.
CREATE FUNCTION treadle.settle_orphan(p_run text, p_expected bigint, p_outcome text, p_reason text, p_message text)
RETURNS TABLE (result text, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t treadle.threads;
  r treadle.runs;
BEGIN
  PERFORM treadle.require_incarnation();
  SELECT x.* INTO t FROM treadle.threads x
   WHERE x.thread_id = (SELECT y.thread_id FROM treadle.runs y WHERE y.run_id = p_run) FOR NO KEY UPDATE;
  SELECT * INTO r FROM treadle.runs x WHERE x.run_id = p_run FOR NO KEY UPDATE;
  IF r.run_id IS NULL THEN
    RETURN;
  ELSIF r.ended_at IS NOT NULL THEN
    RETURN QUERY SELECT 'already', r.status;
    RETURN;
  ELSIF r.status <> 'pending' THEN
    IF t.fencing_token <> p_expected THEN
      RETURN;
    END IF;
    UPDATE treadle.threads x SET fencing_token = x.fencing_token + 1, fence_key = uuid_send(gen_random_uuid())
     WHERE x.thread_id = t.thread_id RETURNING * INTO t;
  END IF;
  PERFORM treadle.close_run(t, r, p_outcome, jsonb_build_object('outcome', p_outcome, 'reason', p_reason, 'message', p_message),
    treadle.orphan_receipt(r, p_reason, p_message), gen_random_uuid(), gen_random_uuid());
  RETURN QUERY SELECT 'settled', p_outcome;
END $$;

-- Ends every run of a thread and removes its contents. The row stays as a tombstone that remembers the token; runs
-- and receipts stay, because they answer for the Run objects. With `p_uid`, only that object's thread.
CREATE FUNCTION treadle.retire_thread(p_namespace text, p_thread_key text, p_uid text)
RETURNS TABLE (thread_id uuid, retired boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t      treadle.threads;
  r      treadle.runs;
  hashes bytea[];
BEGIN
  PERFORM treadle.require_incarnation();
  SELECT * INTO t FROM treadle.threads x
   WHERE x.namespace = p_namespace AND x.thread_key = p_thread_key FOR NO KEY UPDATE;
  IF t.thread_id IS NULL OR t.uid <> p_uid THEN
    RETURN;
  ELSIF t.deleted_at IS NOT NULL THEN
    RETURN QUERY SELECT t.thread_id, false;
    RETURN;
  END IF;
  UPDATE treadle.threads x SET fencing_token = x.fencing_token + 1, fence_key = uuid_send(gen_random_uuid())
   WHERE x.thread_id = t.thread_id RETURNING * INTO t;
  FOR r IN SELECT * FROM treadle.runs x WHERE x.thread_id = t.thread_id AND x.ended_at IS NULL
            ORDER BY x.run_id FOR NO KEY UPDATE LOOP
    PERFORM treadle.close_run(t, r, 'cancelled', '{"outcome": "cancelled", "reason": "ThreadDeleting"}',
      treadle.orphan_receipt(r, 'ThreadDeleting', 'The Thread was deleted.'), gen_random_uuid(), gen_random_uuid());
    SELECT * INTO t FROM treadle.threads x WHERE x.thread_id = t.thread_id;
  END LOOP;
  UPDATE treadle.threads x SET active_run = NULL, holder = NULL, head_manifest = NULL, deleted_at = clock_timestamp()
   WHERE x.thread_id = t.thread_id;
  DELETE FROM treadle.checkpoint_writes x WHERE x.thread_id = t.thread_id;
  DELETE FROM treadle.checkpoint_blobs x WHERE x.thread_id = t.thread_id;
  DELETE FROM treadle.checkpoints x WHERE x.thread_id = t.thread_id;
  DELETE FROM treadle.run_events x WHERE x.thread_id = t.thread_id;
  DELETE FROM treadle.workspace_manifests x WHERE x.thread_id = t.thread_id;
  WITH gone AS (DELETE FROM treadle.thread_blobs x WHERE x.thread_id = t.thread_id RETURNING x.sha256)
    SELECT array_agg(g.sha256) INTO hashes FROM gone g;
  -- Lock first, look second: the second statement sees whoever came to share a blob while we waited.
  PERFORM 1 FROM treadle.blobs b WHERE b.sha256 = ANY (hashes) ORDER BY b.sha256 FOR UPDATE;
  DELETE FROM treadle.blobs b WHERE b.sha256 = ANY (hashes)
     AND NOT EXISTS (SELECT 1 FROM treadle.thread_blobs x WHERE x.sha256 = b.sha256);
  RETURN QUERY SELECT t.thread_id, true;
END $$;

-- Makes this server's history the current one: every thread's token rises first, in id order, then the incarnation.
-- Until then every function refuses. `p_step` is 1 after a failover and large after a restore from a backup.
CREATE FUNCTION treadle.fence_all(p_step bigint) RETURNS TABLE (threads bigint, incarnation integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  one   uuid;
  total bigint := 0;
BEGIN
  IF p_step IS NULL OR p_step < 1 THEN
    PERFORM treadle.reject('StepInvalid', 'tokens rise by at least 1');
  END IF;
  FOR one IN SELECT t.thread_id FROM treadle.threads t ORDER BY t.thread_id LOOP
    UPDATE treadle.threads t SET fencing_token = t.fencing_token + p_step, fence_key = uuid_send(gen_random_uuid()), holder = NULL
     WHERE t.thread_id = one;
    total := total + 1;
  END LOOP;
  RETURN QUERY
    UPDATE treadle.store_incarnation i
       SET timeline = substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), changed_at = now(),
           system_identifier = (SELECT c.system_identifier FROM pg_control_system() c),
           incarnation = i.incarnation + 1
    RETURNING total, i.incarnation;
END $$;

-- Ends the agent sessions that keep `p_pid` (the caller's other connection) waiting for a lock.
CREATE FUNCTION treadle.end_blockers(p_pid integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(pg_terminate_backend(a.pid))::integer
    FROM pg_stat_activity a
   WHERE a.pid = ANY (pg_blocking_pids(p_pid)) AND treadle.is_agent(a.usesysid)
$$;

-- Ends agent transactions that are older than a bound: they hold locks and keep vacuum from its work.
CREATE FUNCTION treadle.end_old_transactions(p_seconds integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(pg_terminate_backend(a.pid))::integer
    FROM pg_stat_activity a
   WHERE a.datname = current_database() AND a.xact_start < clock_timestamp() - make_interval(secs => p_seconds)
     AND treadle.is_agent(a.usesysid)
$$;

GRANT EXECUTE ON FUNCTION
  treadle.register_thread, treadle.admit_run, treadle.assign_run, treadle.request_cancel, treadle.settle_orphan,
  treadle.retire_thread, treadle.fence_all, treadle.end_blockers, treadle.end_old_transactions
TO treadle_operator;
