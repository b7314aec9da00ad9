-- Generated: `treadle-migrate dump-schema`. Read it, never edit it; the migrations are the source.

CREATE TABLE treadle.agent_pods (
  namespace text NOT NULL,
  pod text NOT NULL,
  pod_key text NOT NULL,
  key_hash bytea NOT NULL,
  run_id text NOT NULL,
  attempt integer NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now()
);
CREATE TABLE treadle.blobs (
  sha256 bytea NOT NULL,
  size integer NOT NULL,
  data bytea NOT NULL
);
CREATE TABLE treadle.checkpoint_blobs (
  thread_id uuid NOT NULL,
  checkpoint_ns text NOT NULL,
  channel text NOT NULL,
  version text NOT NULL,
  type text NOT NULL,
  blob bytea NOT NULL,
  token bigint NOT NULL
);
CREATE TABLE treadle.checkpoint_writes (
  thread_id uuid NOT NULL,
  checkpoint_ns text NOT NULL,
  checkpoint_id text NOT NULL,
  task_id text NOT NULL,
  idx integer NOT NULL,
  channel text NOT NULL,
  type text NOT NULL,
  blob bytea NOT NULL,
  task_path text NOT NULL,
  token bigint NOT NULL
);
CREATE TABLE treadle.checkpoints (
  thread_id uuid NOT NULL,
  checkpoint_ns text NOT NULL,
  checkpoint_id text NOT NULL,
  parent_checkpoint_id text,
  checkpoint jsonb NOT NULL,
  metadata jsonb NOT NULL,
  token bigint NOT NULL
);
CREATE TABLE treadle.migrations (
  version integer NOT NULL,
  name text NOT NULL,
  digest text NOT NULL,
  applied_at timestamp with time zone NOT NULL DEFAULT now()
);
CREATE TABLE treadle.receipts (
  run_id text NOT NULL,
  kind text NOT NULL,
  digest bytea NOT NULL,
  payload jsonb NOT NULL,
  token bigint NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now()
);
CREATE TABLE treadle.run_attempts (
  run_id text NOT NULL,
  attempt integer NOT NULL,
  token bigint NOT NULL,
  key_hash bytea NOT NULL,
  pod text NOT NULL,
  pod_uid text,
  node text,
  started timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  last_seen timestamp with time zone,
  ended timestamp with time zone,
  class text,
  reason text
) WITH (fillfactor=70);
CREATE TABLE treadle.run_events (
  thread_id uuid NOT NULL,
  seq bigint NOT NULL,
  run_id text NOT NULL,
  event_id uuid NOT NULL,
  type text NOT NULL,
  task_id text,
  payload jsonb NOT NULL,
  chain bytea NOT NULL,
  token bigint NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now()
);
CREATE TABLE treadle.runs (
  run_id text NOT NULL,
  thread_id uuid NOT NULL,
  namespace text NOT NULL,
  name text NOT NULL,
  status text NOT NULL,
  object_created timestamp with time zone NOT NULL,
  attempt integer NOT NULL DEFAULT 0,
  token bigint NOT NULL DEFAULT 0,
  spec_hash text NOT NULL,
  input jsonb NOT NULL,
  files jsonb NOT NULL DEFAULT '[]'::jsonb,
  config jsonb NOT NULL,
  baseline_manifest uuid,
  cancel_action text,
  cancel_requested_at timestamp with time zone,
  stop_reason text,
  model text,
  usage jsonb NOT NULL DEFAULT '{}'::jsonb,
  created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  started_at timestamp with time zone,
  ended_at timestamp with time zone
) WITH (fillfactor=70);
CREATE TABLE treadle.store_incarnation (
  only_row boolean NOT NULL DEFAULT true,
  timeline text NOT NULL,
  system_identifier bigint NOT NULL,
  incarnation integer NOT NULL DEFAULT 1,
  changed_at timestamp with time zone NOT NULL DEFAULT now()
);
CREATE TABLE treadle.thread_blobs (
  thread_id uuid NOT NULL,
  sha256 bytea NOT NULL
);
CREATE TABLE treadle.threads (
  thread_id uuid NOT NULL DEFAULT gen_random_uuid(),
  namespace text NOT NULL,
  thread_key text NOT NULL,
  name text NOT NULL,
  uid text NOT NULL,
  agent text NOT NULL,
  max_queued integer NOT NULL,
  fencing_token bigint NOT NULL DEFAULT 0,
  fence_key bytea,
  active_run text,
  holder text,
  head_seq bigint NOT NULL DEFAULT 0,
  head_chain bytea NOT NULL DEFAULT '\x00000000000000000000000000000000'::bytea,
  head_manifest uuid,
  thread_gen integer NOT NULL DEFAULT 1,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  deleted_at timestamp with time zone
) WITH (fillfactor=50);
CREATE TABLE treadle.workspace_manifests (
  thread_id uuid NOT NULL,
  manifest_id uuid NOT NULL,
  run_id text NOT NULL,
  entries jsonb NOT NULL,
  token bigint NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now()
);
ALTER TABLE treadle.agent_pods ADD CONSTRAINT agent_pods_key_hash_key UNIQUE (key_hash);
ALTER TABLE treadle.agent_pods ADD CONSTRAINT agent_pods_pkey PRIMARY KEY (namespace, pod);
ALTER TABLE treadle.agent_pods ADD CONSTRAINT agent_pods_run_id_fkey FOREIGN KEY (run_id) REFERENCES treadle.runs(run_id);
ALTER TABLE treadle.blobs ADD CONSTRAINT blobs_pkey PRIMARY KEY (sha256);
ALTER TABLE treadle.checkpoint_blobs ADD CONSTRAINT checkpoint_blobs_pkey PRIMARY KEY (thread_id, checkpoint_ns, channel, version);
ALTER TABLE treadle.checkpoint_writes ADD CONSTRAINT checkpoint_writes_pkey PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx);
ALTER TABLE treadle.checkpoints ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id);
ALTER TABLE treadle.migrations ADD CONSTRAINT migrations_pkey PRIMARY KEY (version);
ALTER TABLE treadle.receipts ADD CONSTRAINT receipts_pkey PRIMARY KEY (run_id, kind);
ALTER TABLE treadle.receipts ADD CONSTRAINT receipts_run_id_fkey FOREIGN KEY (run_id) REFERENCES treadle.runs(run_id);
ALTER TABLE treadle.run_attempts ADD CONSTRAINT run_attempts_pkey PRIMARY KEY (run_id, attempt);
ALTER TABLE treadle.run_attempts ADD CONSTRAINT run_attempts_run_id_fkey FOREIGN KEY (run_id) REFERENCES treadle.runs(run_id);
ALTER TABLE treadle.run_events ADD CONSTRAINT run_events_pkey PRIMARY KEY (thread_id, seq);
ALTER TABLE treadle.run_events ADD CONSTRAINT run_events_thread_id_event_id_key UNIQUE (thread_id, event_id);
ALTER TABLE treadle.runs ADD CONSTRAINT runs_pkey PRIMARY KEY (run_id);
ALTER TABLE treadle.runs ADD CONSTRAINT runs_run_id_check CHECK (((length(run_id) >= 1) AND (length(run_id) <= 64)));
ALTER TABLE treadle.runs ADD CONSTRAINT runs_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'assigned'::text, 'running'::text, 'finalizing'::text, 'parked'::text, 'success'::text, 'error'::text, 'timeout'::text, 'cancelled'::text, 'interrupted'::text])));
ALTER TABLE treadle.runs ADD CONSTRAINT runs_thread_id_fkey FOREIGN KEY (thread_id) REFERENCES treadle.threads(thread_id);
ALTER TABLE treadle.store_incarnation ADD CONSTRAINT store_incarnation_only_row_check CHECK (only_row);
ALTER TABLE treadle.store_incarnation ADD CONSTRAINT store_incarnation_pkey PRIMARY KEY (only_row);
ALTER TABLE treadle.thread_blobs ADD CONSTRAINT thread_blobs_pkey PRIMARY KEY (thread_id, sha256);
ALTER TABLE treadle.thread_blobs ADD CONSTRAINT thread_blobs_sha256_fkey FOREIGN KEY (sha256) REFERENCES treadle.blobs(sha256);
ALTER TABLE treadle.thread_blobs ADD CONSTRAINT thread_blobs_thread_id_fkey FOREIGN KEY (thread_id) REFERENCES treadle.threads(thread_id);
ALTER TABLE treadle.threads ADD CONSTRAINT threads_fencing_token_check CHECK (((fencing_token >= 0) AND (fencing_token < '9007199254740992'::bigint)));
ALTER TABLE treadle.threads ADD CONSTRAINT threads_max_queued_check CHECK ((max_queued >= 0));
ALTER TABLE treadle.threads ADD CONSTRAINT threads_namespace_thread_key_key UNIQUE (namespace, thread_key);
ALTER TABLE treadle.threads ADD CONSTRAINT threads_pkey PRIMARY KEY (thread_id);
ALTER TABLE treadle.workspace_manifests ADD CONSTRAINT workspace_manifests_pkey PRIMARY KEY (thread_id, manifest_id);
ALTER TABLE treadle.workspace_manifests ADD CONSTRAINT workspace_manifests_thread_id_fkey FOREIGN KEY (thread_id) REFERENCES treadle.threads(thread_id);
CREATE INDEX agent_pods_run ON treadle.agent_pods USING btree (run_id);
CREATE INDEX checkpoints_latest ON treadle.checkpoints USING btree (thread_id, checkpoint_ns, token, checkpoint_id);
CREATE UNIQUE INDEX one_active_run_per_thread ON treadle.runs USING btree (thread_id) WHERE (status = ANY (ARRAY['assigned'::text, 'running'::text, 'finalizing'::text, 'parked'::text]));
CREATE INDEX run_events_run ON treadle.run_events USING btree (run_id, seq);
CREATE INDEX runs_ended ON treadle.runs USING btree (ended_at) WHERE (ended_at IS NOT NULL);
CREATE INDEX runs_named ON treadle.runs USING btree (namespace, name, created_at DESC);
CREATE INDEX runs_open ON treadle.runs USING btree (run_id) WHERE (ended_at IS NULL);
CREATE INDEX runs_pending ON treadle.runs USING btree (thread_id, object_created, run_id) WHERE (status = 'pending'::text);
CREATE INDEX thread_blobs_sha256 ON treadle.thread_blobs USING btree (sha256);
CREATE OR REPLACE FUNCTION treadle.admit_run(p_run text, p_namespace text, p_name text, p_thread uuid, p_spec_hash text, p_input jsonb, p_config jsonb, p_object_created timestamp with time zone, p_files jsonb, p_data bytea[])
 RETURNS TABLE(result text, status text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.append_events(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_events jsonb, p_retry boolean)
 RETURNS TABLE(first_seq bigint, last_seq bigint, added integer, cancel text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
  t treadle.threads := treadle.lock_thread(p_thread, p_run, p_token, p_key);
BEGIN
  IF t.thread_id IS NULL THEN
    RETURN;
  END IF;
  RETURN QUERY
    SELECT w.first_seq, w.last_seq, w.added, (SELECT r.cancel_action FROM treadle.runs r WHERE r.run_id = p_run)
      FROM treadle.append_locked(t, p_run, p_events, p_retry) w;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.append_locked(t treadle.threads, p_run text, p_events jsonb, p_retry boolean, OUT first_seq bigint, OUT last_seq bigint, OUT added integer)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
DECLARE
  bad record;
BEGIN
  IF p_events IS NULL OR jsonb_typeof(p_events) <> 'array' OR jsonb_array_length(p_events) > 1000 THEN
    PERFORM treadle.reject('BatchTooLarge', 'events must be a JSON array of at most 1000 events: send several batches');
  END IF;
  SELECT x.v ->> 'type' AS type, x.v ->> 'task' AS task, x.v -> 'payload' AS payload INTO bad
    FROM jsonb_array_elements(p_events) x (v)
   WHERE (x.v ->> 'id') IS NULL
      OR coalesce(x.v ->> 'type' !~ '^[a-z][a-z0-9._-]{0,63}$', true)
      OR x.v ->> 'type' IN ('run.end', 'run.delivery')
      OR length(x.v ->> 'task') > 256
      OR coalesce(jsonb_typeof(x.v -> 'payload') <> 'object', true)
      OR pg_column_size(x.v -> 'payload') > 524288
   LIMIT 1;
  IF bad.type IN ('run.end', 'run.delivery') THEN
    PERFORM treadle.reject('ReservedType', format('event type %s is written by a settlement only', bad.type));
  ELSIF FOUND THEN
    PERFORM treadle.reject('EventInvalid',
      'an event needs an id, a type like tool.result (at most 64 characters), a task of at most 256, and an object of '
      'at most 512 kB as payload');
  END IF;
  IF p_retry THEN  -- one index probe per id: an "= ANY" look-up would scan the thread under stale statistics
    SELECT coalesce(jsonb_agg(x.v ORDER BY x.n), '[]') INTO p_events
      FROM jsonb_array_elements(p_events) WITH ORDINALITY x (v, n)
      LEFT JOIN LATERAL (SELECT r.seq FROM treadle.run_events r
                          WHERE r.thread_id = t.thread_id AND r.event_id = (x.v ->> 'id')::uuid LIMIT 1) had ON true
     WHERE had.seq IS NULL;
  END IF;
  SELECT w.first_seq, w.last_seq, w.added INTO first_seq, last_seq, added
    FROM treadle.write_events(t, p_run, p_events) w;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.assign_run(p_run text, p_attempt integer, p_expected bigint, p_pod text, p_class text, p_reason text, p_node text)
 RETURNS TABLE(token bigint, fence_key bytea, pod_key text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.begin_finalizing(p_thread uuid, p_run text, p_token bigint, p_key bytea)
 RETURNS TABLE(status text, cancel text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
  t treadle.threads := treadle.lock_thread(p_thread, p_run, p_token, p_key);
BEGIN
  IF t.thread_id IS NULL THEN
    RETURN;
  END IF;
  UPDATE treadle.runs r SET status = 'finalizing'
   WHERE r.run_id = p_run AND (r.status = 'finalizing' OR r.status = 'running' AND r.cancel_action IS NULL);
  RETURN QUERY SELECT r.status, r.cancel_action FROM treadle.runs r WHERE r.run_id = p_run;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.blobs_of(p_thread uuid, p_ns text, p_checkpoint jsonb)
 RETURNS TABLE(channels text[], types text[], data bytea[])
 LANGUAGE sql
 STABLE
AS $function$
    SELECT coalesce(array_agg(b.channel), '{}'), coalesce(array_agg(b.type), '{}'),
        coalesce(array_agg(b.blob), '{}')
    FROM jsonb_each_text(p_checkpoint -> 'channel_versions') v
    JOIN treadle.checkpoint_blobs b
        ON b.thread_id = p_thread AND b.checkpoint_ns = p_ns AND b.channel = v.key AND b.version = v.value
$function$
;
CREATE OR REPLACE FUNCTION treadle.claim_run(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_pod_uid text, p_nonce text)
 RETURNS TABLE(head_checkpoint text, head_seq bigint, input jsonb, files jsonb, manifest jsonb, manifest_run text, baseline jsonb, cancel text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.close_run(t treadle.threads, r treadle.runs, p_outcome text, p_end jsonb, p_receipt jsonb, p_end_id uuid, p_delivery_id uuid)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
DECLARE
  receipt jsonb := p_receipt || jsonb_build_object(
    'run', r.run_id, 'thread', t.thread_key, 'attempt', r.attempt, 'token', t.fencing_token, 'outcome', p_outcome);
BEGIN
  IF p_outcome IS NULL OR p_outcome NOT IN ('success', 'error', 'timeout', 'cancelled') THEN
    PERFORM treadle.reject('OutcomeInvalid', 'the outcome of a run is success, error, timeout or cancelled');
  END IF;
  IF receipt IS NULL OR jsonb_typeof(p_receipt) <> 'object' OR pg_column_size(receipt) > 1048576
     OR coalesce(jsonb_typeof(p_end) <> 'object', true) OR pg_column_size(p_end) > 524288 THEN
    PERFORM treadle.reject('ReceiptInvalid', 'end event and receipt must be JSON objects of at most 512 kB and 1 MB');
  END IF;
  PERFORM treadle.write_events(t, r.run_id, jsonb_build_array(
    jsonb_build_object('id', p_end_id, 'type', 'run.end', 'payload', p_end),
    jsonb_build_object('id', p_delivery_id, 'type', 'run.delivery', 'payload', receipt)));
  INSERT INTO treadle.receipts (run_id, kind, digest, payload, token)
    VALUES (r.run_id, 'run.delivery', sha256(convert_to(receipt::text, 'UTF8')), receipt, t.fencing_token);
  UPDATE treadle.runs
     SET status = p_outcome, token = t.fencing_token, ended_at = clock_timestamp(),
         stop_reason = left(receipt ->> 'reason', 63), model = left(receipt ->> 'model', 253),
         usage = coalesce(CASE WHEN jsonb_typeof(receipt -> 'usage') = 'object' THEN receipt -> 'usage' END, usage)
   WHERE run_id = r.run_id;
  UPDATE treadle.run_attempts SET ended = clock_timestamp(), reason = left(receipt ->> 'reason', 63)
   WHERE run_id = r.run_id AND ended IS NULL;
  UPDATE treadle.threads SET active_run = NULL, holder = NULL
   WHERE thread_id = t.thread_id AND active_run = r.run_id;
  DELETE FROM treadle.agent_pods WHERE run_id = r.run_id;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.commit_step(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_events jsonb, p_retry boolean, p_write_ns text[], p_write_checkpoint text[], p_write_task text[], p_write_path text[], p_write_idx integer[], p_write_channel text[], p_write_type text[], p_write_blob bytea[], p_ns text[], p_id text[], p_parent text[], p_checkpoint text[], p_metadata text[], p_blob_ns text[], p_blob_channel text[], p_blob_version text[], p_blob_type text[], p_blob bytea[])
 RETURNS TABLE(first_seq bigint, last_seq bigint, added integer, cancel text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.commit_step_with_manifest(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_entries jsonb, p_manifest uuid, p_events jsonb, p_retry boolean, p_write_ns text[], p_write_checkpoint text[], p_write_task text[], p_write_path text[], p_write_idx integer[], p_write_channel text[], p_write_type text[], p_write_blob bytea[], p_ns text[], p_id text[], p_parent text[], p_checkpoint text[], p_metadata text[], p_blob_ns text[], p_blob_channel text[], p_blob_version text[], p_blob_type text[], p_blob bytea[])
 RETURNS TABLE(first_seq bigint, last_seq bigint, added integer, cancel text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
  -- Both lock the thread row with the whole capability in the predicate; without it both write nothing.
  PERFORM treadle.put_manifest(p_thread, p_run, p_token, p_key, p_entries, p_manifest);
  RETURN QUERY SELECT * FROM treadle.commit_step(
    p_thread, p_run, p_token, p_key, p_events, p_retry,
    p_write_ns, p_write_checkpoint, p_write_task, p_write_path, p_write_idx, p_write_channel, p_write_type,
    p_write_blob, p_ns, p_id, p_parent, p_checkpoint, p_metadata,
    p_blob_ns, p_blob_channel, p_blob_version, p_blob_type, p_blob);
END $function$
;
CREATE OR REPLACE FUNCTION treadle.copy_checkpoints(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_source uuid, p_source_run text, p_source_token bigint, p_source_key bytea)
 RETURNS TABLE(done boolean)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.delete_checkpoints_of_runs(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_runs text[])
 RETURNS TABLE(done boolean)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.delete_thread_checkpoints(p_thread uuid, p_run text, p_token bigint, p_key bytea)
 RETURNS TABLE(done boolean)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF (treadle.lock_thread(p_thread, p_run, p_token, p_key)).thread_id IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM treadle.checkpoints c WHERE c.thread_id = p_thread;
    DELETE FROM treadle.checkpoint_blobs b WHERE b.thread_id = p_thread;
    DELETE FROM treadle.checkpoint_writes w WHERE w.thread_id = p_thread;
    RETURN QUERY SELECT true;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.end_blockers(p_pid integer)
 RETURNS integer
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
  SELECT count(pg_terminate_backend(a.pid))::integer
    FROM pg_stat_activity a
   WHERE a.pid = ANY (pg_blocking_pids(p_pid)) AND treadle.is_agent(a.usesysid)
$function$
;
CREATE OR REPLACE FUNCTION treadle.end_old_transactions(p_seconds integer)
 RETURNS integer
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
  SELECT count(pg_terminate_backend(a.pid))::integer
    FROM pg_stat_activity a
   WHERE a.datname = current_database() AND a.xact_start < clock_timestamp() - make_interval(secs => p_seconds)
     AND treadle.is_agent(a.usesysid)
$function$
;
CREATE OR REPLACE FUNCTION treadle.fence_all(p_step bigint)
 RETURNS TABLE(threads bigint, incarnation integer)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.get_blob(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_sha256 text)
 RETURNS TABLE(held boolean, data bytea)
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
  IF NOT treadle.holds(p_thread, p_run, p_token, p_key) THEN
    RETURN QUERY SELECT false, NULL::bytea;
    RETURN;
  END IF;
  RETURN QUERY
    SELECT true, (SELECT b.data FROM treadle.thread_blobs tb JOIN treadle.blobs b ON b.sha256 = tb.sha256
                   WHERE tb.thread_id = p_thread AND tb.sha256 = treadle.hash_of(p_sha256));
END $function$
;
CREATE OR REPLACE FUNCTION treadle.get_checkpoint(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_ns text, p_id text)
 RETURNS TABLE(held boolean, checkpoint_ns text, checkpoint_id text, parent_checkpoint_id text, token bigint, checkpoint text, metadata text, blob_channels text[], blob_types text[], blobs bytea[], write_tasks text[], write_channels text[], write_types text[], write_blobs bytea[])
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.get_delta_history(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_ns text, p_id text, p_channels text[])
 RETURNS TABLE(held boolean, inline_seeds text, seed_channels text[], seed_types text[], seeds bytea[], write_tasks text[], write_channels text[], write_types text[], write_blobs bytea[])
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.hash_of(p_hex text)
 RETURNS bytea
 LANGUAGE sql
 IMMUTABLE
AS $function$
  SELECT CASE WHEN p_hex ~ '^[0-9a-f]{64}$' THEN decode(p_hex, 'hex') END
$function$
;
CREATE OR REPLACE FUNCTION treadle.heartbeat(p_thread uuid, p_run text, p_token bigint, p_key bytea)
 RETURNS TABLE(cancel text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
  t treadle.threads := treadle.lock_thread(p_thread, p_run, p_token, p_key);
BEGIN
  IF t.thread_id IS NULL THEN
    RETURN;
  END IF;
  UPDATE treadle.run_attempts a SET last_seen = clock_timestamp() WHERE a.run_id = p_run AND a.token = p_token;
  RETURN QUERY SELECT r.cancel_action FROM treadle.runs r WHERE r.run_id = p_run;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.holds(p_thread uuid, p_run text, p_token bigint, p_key bytea)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
BEGIN
  PERFORM treadle.require_incarnation();
  RETURN EXISTS (
    SELECT 1 FROM treadle.threads x
     WHERE x.thread_id = p_thread AND x.active_run = p_run AND x.fencing_token = p_token AND x.fence_key = p_key);
END $function$
;
CREATE OR REPLACE FUNCTION treadle.is_agent(p_role oid)
 RETURNS boolean
 LANGUAGE sql
 STABLE
AS $function$
  SELECT EXISTS (SELECT 1 FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
                  WHERE m.member = p_role AND g.rolname = 'treadle_agent')
     AND NOT pg_has_role(p_role, 'treadle_owner', 'MEMBER')
$function$
;
CREATE OR REPLACE FUNCTION treadle.list_checkpoints(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_ns text, p_id text, p_filter text, p_before text, p_after_token bigint, p_after_id text, p_after_ns text, p_limit integer)
 RETURNS TABLE(held boolean, checkpoint_ns text, checkpoint_id text, parent_checkpoint_id text, token bigint, checkpoint text, metadata text, blob_channels text[], blob_types text[], blobs bytea[], write_tasks text[], write_channels text[], write_types text[], write_blobs bytea[])
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET plan_cache_mode TO 'force_custom_plan'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.lock_thread(p_thread uuid, p_run text, p_token bigint, p_key bytea)
 RETURNS treadle.threads
 LANGUAGE plpgsql
AS $function$
DECLARE
  t treadle.threads;
BEGIN
  PERFORM treadle.require_incarnation();
  -- NO KEY UPDATE, not SHARE: overlapping sharers would keep a takeover waiting for ever (03-ownership, Facts).
  SELECT * INTO t FROM treadle.threads x
   WHERE x.thread_id = p_thread AND x.active_run = p_run AND x.fencing_token = p_token AND x.fence_key = p_key
     FOR NO KEY UPDATE;
  RETURN t;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.log_name(t treadle.threads)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
  SELECT t.thread_gen || 'i' || i.incarnation FROM treadle.store_incarnation i
$function$
;
CREATE OR REPLACE FUNCTION treadle.missing_blobs(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_sha256 text[])
 RETURNS TABLE(held boolean, missing text[])
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.newest_checkpoint_id(p_thread uuid, p_run text, p_token bigint, p_key bytea)
 RETURNS TABLE(held boolean, checkpoint_id text)
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT h.held, (SELECT max(c.checkpoint_id) FROM treadle.checkpoints c WHERE h.held AND c.thread_id = p_thread)
    FROM (SELECT treadle.holds(p_thread, p_run, p_token, p_key) AS held) h
$function$
;
CREATE OR REPLACE FUNCTION treadle.orphan_receipt(r treadle.runs, p_reason text, p_message text)
 RETURNS jsonb
 LANGUAGE sql
 STABLE
AS $function$
  SELECT jsonb_build_object(
    'checkpoint', (SELECT c.checkpoint_id FROM treadle.checkpoints c
                    WHERE r.attempt > 0 AND c.thread_id = r.thread_id AND c.checkpoint_ns = ''
                    ORDER BY c.token DESC, c.checkpoint_id DESC LIMIT 1),
    'message_id', NULL, 'summary', '', 'reason', p_reason, 'message', p_message,
    'produced', '[]'::jsonb, 'presented', '[]'::jsonb, 'matched', '[]'::jsonb, 'artifacts', '[]'::jsonb,
    'coverage', 'Unknown', 'requirement', coalesce(r.config #>> '{delivery,requirement}', 'None'),
    'journal_complete', r.attempt = 0, 'usage', r.usage, 'model', r.config #>> '{model,name}')
$function$
;
CREATE OR REPLACE FUNCTION treadle.prune_checkpoints(p_thread uuid, p_run text, p_token bigint, p_key bytea)
 RETURNS TABLE(done boolean)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.put_blob(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_data bytea)
 RETURNS TABLE(sha256 text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
  t treadle.threads := treadle.lock_thread(p_thread, p_run, p_token, p_key);
BEGIN
  IF t.thread_id IS NULL THEN
    RETURN;
  END IF;
  RETURN QUERY SELECT encode(treadle.store_blob(p_thread, p_data), 'hex');
END $function$
;
CREATE OR REPLACE FUNCTION treadle.put_checkpoint(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_ns text, p_id text, p_parent text, p_checkpoint text, p_metadata text, p_blob_channel text[], p_blob_version text[], p_blob_type text[], p_blob bytea[])
 RETURNS TABLE(done boolean)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF (treadle.lock_thread(p_thread, p_run, p_token, p_key)).thread_id IS NULL THEN
        RETURN;
    END IF;
    PERFORM treadle.store_checkpoints(p_thread, p_token,
        ARRAY[p_ns], ARRAY[p_id], ARRAY[p_parent], ARRAY[p_checkpoint], ARRAY[p_metadata],
        array_fill(p_ns, ARRAY[cardinality(p_blob)]), p_blob_channel, p_blob_version, p_blob_type, p_blob);
    RETURN QUERY SELECT true;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.put_manifest(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_entries jsonb, p_manifest uuid)
 RETURNS TABLE(stored boolean)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.put_writes(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_ns text[], p_checkpoint text[], p_task text[], p_path text[], p_idx integer[], p_channel text[], p_type text[], p_blob bytea[])
 RETURNS TABLE(done boolean)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF (treadle.lock_thread(p_thread, p_run, p_token, p_key)).thread_id IS NULL THEN
        RETURN;
    END IF;
    PERFORM treadle.store_writes(
        p_thread, p_token, p_ns, p_checkpoint, p_task, p_path, p_idx, p_channel, p_type, p_blob);
    RETURN QUERY SELECT true;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.read_checkpoint(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_ns text, p_id text)
 RETURNS TABLE(held boolean, checkpoint_ns text, checkpoint_id text, parent_checkpoint_id text, token bigint, checkpoint text, metadata text, task text, channel text, type text, data bytea)
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.register_thread(p_namespace text, p_thread_key text, p_name text, p_uid text, p_agent text, p_max_queued integer, p_adopt boolean)
 RETURNS TABLE(thread_id uuid, namespace text, thread_key text, name text, uid text, agent text, max_queued integer, fencing_token bigint, active_run text, holder text, head_seq bigint, queued bigint, log text, retired boolean)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.reject(p_reason text, p_message text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'TR003', MESSAGE = p_message, DETAIL = p_reason;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.request_cancel(p_run text, p_action text, p_reason text)
 RETURNS TABLE(status text, cancel text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
  PERFORM treadle.require_incarnation();
  UPDATE treadle.runs r
     SET cancel_action = p_action, cancel_requested_at = clock_timestamp(), stop_reason = p_reason
   WHERE r.run_id = p_run AND r.cancel_action IS NULL AND r.status IN ('pending', 'assigned', 'running', 'parked');
  RETURN QUERY SELECT r.status, r.cancel_action FROM treadle.runs r WHERE r.run_id = p_run;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.require_incarnation()
 RETURNS void
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF NOT EXISTS (
    SELECT 1 FROM treadle.store_incarnation i
     WHERE i.timeline = substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
       AND i.system_identifier = (SELECT c.system_identifier FROM pg_control_system() c)
  ) THEN
    RAISE EXCEPTION USING ERRCODE = 'TR002',
      MESSAGE = 'the store was failed over or restored since its tokens were issued',
      HINT = 'run: treadle-migrate fence-all';
  END IF;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.retire_thread(p_namespace text, p_thread_key text, p_uid text)
 RETURNS TABLE(thread_id uuid, retired boolean)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.schema_version()
 RETURNS integer
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
  SELECT coalesce(max(m.version), 0) FROM treadle.migrations m
$function$
;
CREATE OR REPLACE FUNCTION treadle.settle_orphan(p_run text, p_expected bigint, p_outcome text, p_reason text, p_message text)
 RETURNS TABLE(result text, outcome text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.settle_run(p_thread uuid, p_run text, p_token bigint, p_key bytea, p_outcome text, p_end jsonb, p_receipt jsonb, p_end_id uuid, p_delivery_id uuid)
 RETURNS TABLE(result text, outcome text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.store_blob(p_thread uuid, p_data bytea)
 RETURNS bytea
 LANGUAGE plpgsql
AS $function$
DECLARE
  hash bytea := sha256(p_data);
BEGIN
  IF p_data IS NULL OR octet_length(p_data) > 33554432 THEN
    PERFORM treadle.reject('BlobTooLarge', 'a workspace file may hold at most 32 MiB');
  END IF;
  PERFORM 1 FROM treadle.thread_blobs b WHERE b.thread_id = p_thread AND b.sha256 = hash;
  IF FOUND THEN
    RETURN hash;
  END IF;
  LOOP
    INSERT INTO treadle.blobs (sha256, size, data) VALUES (hash, octet_length(p_data), p_data) ON CONFLICT DO NOTHING;
    PERFORM 1 FROM treadle.blobs b WHERE b.sha256 = hash FOR KEY SHARE;
    EXIT WHEN FOUND;
  END LOOP;
  INSERT INTO treadle.thread_blobs (thread_id, sha256) VALUES (p_thread, hash) ON CONFLICT DO NOTHING;
  RETURN hash;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.store_checkpoints(p_thread uuid, p_token bigint, p_ns text[], p_id text[], p_parent text[], p_checkpoint text[], p_metadata text[], p_blob_ns text[], p_blob_channel text[], p_blob_version text[], p_blob_type text[], p_blob bytea[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.store_writes(p_thread uuid, p_token bigint, p_ns text[], p_checkpoint text[], p_task text[], p_path text[], p_idx integer[], p_channel text[], p_type text[], p_blob bytea[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.sweep_blobs(p_thread uuid)
 RETURNS void
 LANGUAGE sql
AS $function$
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
$function$
;
CREATE OR REPLACE FUNCTION treadle.take_assignment(p_pod_key text, p_pod_uid text)
 RETURNS TABLE(thread_id uuid, run_id text, token bigint, fence_key bytea, namespace text, run_name text, thread_key text, attempt integer, log text, config jsonb)
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$
;
CREATE OR REPLACE FUNCTION treadle.unstored_channels(p_thread uuid, p_ns text, p_checkpoint jsonb, p_channels text[])
 RETURNS text[]
 LANGUAGE sql
 STABLE
AS $function$
    SELECT coalesce(array_agg(u.channel), '{}') FROM unnest(p_channels) AS u(channel)
    WHERE NOT coalesce(p_checkpoint -> 'channel_values' ? u.channel, false)
      AND NOT EXISTS (
        SELECT FROM treadle.checkpoint_blobs b
        WHERE b.thread_id = p_thread AND b.checkpoint_ns = p_ns AND b.channel = u.channel
          AND b.version = p_checkpoint -> 'channel_versions' ->> u.channel)
$function$
;
CREATE OR REPLACE FUNCTION treadle.write_events(t treadle.threads, p_run text, p_events jsonb, OUT first_seq bigint, OUT last_seq bigint, OUT added integer)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
DECLARE
  link   bytea := t.head_chain;
  chains bytea[] := '{}';
  e      record;
BEGIN
  first_seq := t.head_seq + 1;
  last_seq := t.head_seq;
  FOR e IN SELECT (x.v ->> 'id')::uuid AS id, x.v ->> 'type' AS type
             FROM jsonb_array_elements(p_events) WITH ORDINALITY x (v, n) ORDER BY x.n
  LOOP
    last_seq := last_seq + 1;
    link := substring(sha256(link || uuid_send(e.id) || int8send(last_seq) || convert_to(e.type, 'UTF8')) FOR 16);
    chains := array_append(chains, link);
  END LOOP;
  added := last_seq - t.head_seq;
  IF added = 0 THEN
    RETURN;
  END IF;
  INSERT INTO treadle.run_events (thread_id, seq, run_id, event_id, type, task_id, payload, chain, token)
    SELECT t.thread_id, t.head_seq + x.n, p_run, (x.v ->> 'id')::uuid, x.v ->> 'type', x.v ->> 'task',
           x.v -> 'payload', c.link, t.fencing_token
      FROM jsonb_array_elements(p_events) WITH ORDINALITY x (v, n)
      JOIN unnest(chains) WITH ORDINALITY c (link, n) ON c.n = x.n;
  UPDATE treadle.threads SET head_seq = last_seq, head_chain = link WHERE thread_id = t.thread_id;
END $function$
;
CREATE OR REPLACE FUNCTION treadle.writes_of(p_thread uuid, p_ns text, p_id text)
 RETURNS TABLE(tasks text[], channels text[], types text[], data bytea[])
 LANGUAGE sql
 STABLE
AS $function$
    SELECT coalesce(array_agg(w.task_id), '{}'), coalesce(array_agg(w.channel), '{}'),
        coalesce(array_agg(w.type), '{}'), coalesce(array_agg(w.blob), '{}')
    FROM (
        SELECT * FROM treadle.checkpoint_writes x
        WHERE x.thread_id = p_thread AND x.checkpoint_ns = p_ns AND x.checkpoint_id = p_id
        ORDER BY x.task_path, x.task_id, x.idx
    ) w
$function$
;
CREATE VIEW treadle.run_records AS
 SELECT r.run_id,
    r.namespace,
    r.name,
    r.thread_id,
    t.thread_key,
    r.status,
    r.attempt,
    r.token,
    t.fencing_token AS thread_token,
    t.active_run,
    t.holder,
        CASE
            WHEN r.status = 'pending'::text THEN ( SELECT count(*) AS count
               FROM treadle.runs o
              WHERE o.thread_id = r.thread_id AND o.status = 'pending'::text AND ((ROW(o.object_created, o.run_id) < ROW(r.object_created, r.run_id))))
            ELSE '-1'::integer::bigint
        END AS queue_position,
    r.spec_hash,
    r.config,
    r.cancel_action,
    r.stop_reason,
    r.created_at,
    r.started_at,
    r.ended_at,
    a.attempts,
    a.retries,
    a.disruptions,
        CASE
            WHEN r.ended_at IS NULL THEN h.checkpoint_id
            ELSE q.payload ->> 'checkpoint'::text
        END AS checkpoint_id,
        CASE
            WHEN r.ended_at IS NULL OR h.checkpoint_id = (q.payload ->> 'checkpoint'::text) THEN h.step
            ELSE NULL::integer
        END AS checkpoint_step,
    r.usage,
    r.model,
    (t.thread_gen || 'i'::text) || i.incarnation AS log,
    q.token AS receipt_token,
    encode(q.digest, 'hex'::text) AS receipt_digest,
    q.payload AS receipt_payload,
    q.created_at AS receipt_created_at
   FROM treadle.runs r
     JOIN treadle.threads t ON t.thread_id = r.thread_id
     CROSS JOIN treadle.store_incarnation i
     LEFT JOIN treadle.receipts q ON q.run_id = r.run_id AND q.kind = 'run.delivery'::text
     CROSS JOIN LATERAL ( SELECT count(*) FILTER (WHERE n.class = 'retry'::text)::integer AS retries,
            count(*) FILTER (WHERE n.class = 'disruption'::text)::integer AS disruptions,
            COALESCE(jsonb_agg(jsonb_build_object('attempt', n.attempt, 'token', n.token, 'pod', n.pod, 'pod_uid', n.pod_uid, 'node', n.node, 'started', n.started, 'ended', n.ended, 'class', n.class, 'reason', n.reason) ORDER BY n.attempt) FILTER (WHERE n.attempt > (r.attempt - 10)), '[]'::jsonb) AS attempts
           FROM treadle.run_attempts n
          WHERE n.run_id = r.run_id) a
     LEFT JOIN LATERAL ( SELECT c.checkpoint_id,
            "substring"(c.metadata ->> 'step'::text, '^-?[0-9]{1,9}$'::text)::integer AS step
           FROM treadle.checkpoints c
          WHERE r.attempt > 0 AND c.thread_id = r.thread_id AND c.checkpoint_ns = ''::text AND (r.ended_at IS NULL OR c.checkpoint_id = (q.payload ->> 'checkpoint'::text))
          ORDER BY c.token DESC, c.checkpoint_id DESC
         LIMIT 1) h ON true;
GRANT EXECUTE ON FUNCTION treadle.admit_run(text,text,text,uuid,text,jsonb,jsonb,timestamp with time zone,jsonb,bytea[]) TO treadle_operator;
GRANT EXECUTE ON FUNCTION treadle.append_events(uuid,text,bigint,bytea,jsonb,boolean) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.assign_run(text,integer,bigint,text,text,text,text) TO treadle_operator;
GRANT EXECUTE ON FUNCTION treadle.begin_finalizing(uuid,text,bigint,bytea) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.claim_run(uuid,text,bigint,bytea,text,text) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.commit_step(uuid,text,bigint,bytea,jsonb,boolean,text[],text[],text[],text[],integer[],text[],text[],bytea[],text[],text[],text[],text[],text[],text[],text[],text[],text[],bytea[]) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.commit_step_with_manifest(uuid,text,bigint,bytea,jsonb,uuid,jsonb,boolean,text[],text[],text[],text[],integer[],text[],text[],bytea[],text[],text[],text[],text[],text[],text[],text[],text[],text[],bytea[]) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.copy_checkpoints(uuid,text,bigint,bytea,uuid,text,bigint,bytea) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.delete_checkpoints_of_runs(uuid,text,bigint,bytea,text[]) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.delete_thread_checkpoints(uuid,text,bigint,bytea) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.end_blockers(integer) TO treadle_operator;
GRANT EXECUTE ON FUNCTION treadle.end_old_transactions(integer) TO treadle_operator;
GRANT EXECUTE ON FUNCTION treadle.fence_all(bigint) TO treadle_operator;
GRANT EXECUTE ON FUNCTION treadle.get_blob(uuid,text,bigint,bytea,text) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.get_checkpoint(uuid,text,bigint,bytea,text,text) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.get_delta_history(uuid,text,bigint,bytea,text,text,text[]) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.heartbeat(uuid,text,bigint,bytea) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.list_checkpoints(uuid,text,bigint,bytea,text,text,text,text,bigint,text,text,integer) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.missing_blobs(uuid,text,bigint,bytea,text[]) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.newest_checkpoint_id(uuid,text,bigint,bytea) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.prune_checkpoints(uuid,text,bigint,bytea) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.put_blob(uuid,text,bigint,bytea,bytea) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.put_checkpoint(uuid,text,bigint,bytea,text,text,text,text,text,text[],text[],text[],bytea[]) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.put_manifest(uuid,text,bigint,bytea,jsonb,uuid) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.put_writes(uuid,text,bigint,bytea,text[],text[],text[],text[],integer[],text[],text[],bytea[]) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.read_checkpoint(uuid,text,bigint,bytea,text,text) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.register_thread(text,text,text,text,text,integer,boolean) TO treadle_operator;
GRANT EXECUTE ON FUNCTION treadle.request_cancel(text,text,text) TO treadle_operator;
GRANT EXECUTE ON FUNCTION treadle.retire_thread(text,text,text) TO treadle_operator;
GRANT EXECUTE ON FUNCTION treadle.schema_version() TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.schema_version() TO treadle_gateway;
GRANT EXECUTE ON FUNCTION treadle.schema_version() TO treadle_operator;
GRANT EXECUTE ON FUNCTION treadle.settle_orphan(text,bigint,text,text,text) TO treadle_operator;
GRANT EXECUTE ON FUNCTION treadle.settle_run(uuid,text,bigint,bytea,text,jsonb,jsonb,uuid,uuid) TO treadle_agent;
GRANT EXECUTE ON FUNCTION treadle.take_assignment(text,text) TO treadle_agent;
GRANT SELECT ON treadle.agent_pods TO treadle_operator;
GRANT SELECT ON treadle.blobs TO treadle_gateway;
GRANT SELECT ON treadle.blobs TO treadle_operator;
GRANT SELECT ON treadle.checkpoint_blobs TO treadle_operator;
GRANT SELECT ON treadle.checkpoint_writes TO treadle_operator;
GRANT SELECT ON treadle.checkpoints TO treadle_operator;
GRANT SELECT ON treadle.migrations TO treadle_gateway;
GRANT SELECT ON treadle.migrations TO treadle_operator;
GRANT SELECT ON treadle.receipts TO treadle_gateway;
GRANT SELECT ON treadle.receipts TO treadle_operator;
GRANT SELECT ON treadle.run_attempts (attempt) TO treadle_gateway;
GRANT SELECT ON treadle.run_attempts (class) TO treadle_gateway;
GRANT SELECT ON treadle.run_attempts (ended) TO treadle_gateway;
GRANT SELECT ON treadle.run_attempts (last_seen) TO treadle_gateway;
GRANT SELECT ON treadle.run_attempts (node) TO treadle_gateway;
GRANT SELECT ON treadle.run_attempts (pod) TO treadle_gateway;
GRANT SELECT ON treadle.run_attempts (pod_uid) TO treadle_gateway;
GRANT SELECT ON treadle.run_attempts (reason) TO treadle_gateway;
GRANT SELECT ON treadle.run_attempts (run_id) TO treadle_gateway;
GRANT SELECT ON treadle.run_attempts (started) TO treadle_gateway;
GRANT SELECT ON treadle.run_attempts (token) TO treadle_gateway;
GRANT SELECT ON treadle.run_attempts TO treadle_operator;
GRANT SELECT ON treadle.run_events TO treadle_gateway;
GRANT SELECT ON treadle.run_events TO treadle_operator;
GRANT SELECT ON treadle.run_records TO treadle_gateway;
GRANT SELECT ON treadle.run_records TO treadle_operator;
GRANT SELECT ON treadle.runs TO treadle_gateway;
GRANT SELECT ON treadle.runs TO treadle_operator;
GRANT SELECT ON treadle.store_incarnation TO treadle_gateway;
GRANT SELECT ON treadle.store_incarnation TO treadle_operator;
GRANT SELECT ON treadle.thread_blobs TO treadle_gateway;
GRANT SELECT ON treadle.thread_blobs TO treadle_operator;
GRANT SELECT ON treadle.threads (active_run) TO treadle_gateway;
GRANT SELECT ON treadle.threads (agent) TO treadle_gateway;
GRANT SELECT ON treadle.threads (created_at) TO treadle_gateway;
GRANT SELECT ON treadle.threads (deleted_at) TO treadle_gateway;
GRANT SELECT ON treadle.threads (fencing_token) TO treadle_gateway;
GRANT SELECT ON treadle.threads (head_chain) TO treadle_gateway;
GRANT SELECT ON treadle.threads (head_manifest) TO treadle_gateway;
GRANT SELECT ON treadle.threads (head_seq) TO treadle_gateway;
GRANT SELECT ON treadle.threads (holder) TO treadle_gateway;
GRANT SELECT ON treadle.threads (max_queued) TO treadle_gateway;
GRANT SELECT ON treadle.threads (name) TO treadle_gateway;
GRANT SELECT ON treadle.threads (namespace) TO treadle_gateway;
GRANT SELECT ON treadle.threads (thread_gen) TO treadle_gateway;
GRANT SELECT ON treadle.threads (thread_id) TO treadle_gateway;
GRANT SELECT ON treadle.threads (thread_key) TO treadle_gateway;
GRANT SELECT ON treadle.threads (uid) TO treadle_gateway;
GRANT SELECT ON treadle.threads TO treadle_operator;
GRANT SELECT ON treadle.workspace_manifests TO treadle_gateway;
GRANT SELECT ON treadle.workspace_manifests TO treadle_operator;
