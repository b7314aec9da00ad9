-- Roles, tables, and the internal functions that every fenced write is built from.
--
-- Internal functions (no role may EXECUTE them; the granted functions call them):
--
--   treadle.lock_thread(thread_id, run_id, token, fence_key) -> treadle.threads
--     Refuses with TR002 on a foreign store incarnation, then locks the thread row FOR NO KEY UPDATE with the
--     whole capability in the predicate. `thread_id IS NULL` in the answer: the capability is not current; the
--     caller returns no row (StaleToken in Python) and writes nothing.
--
--   treadle.append_locked(t, run_id, events, retry) -> (first_seq, last_seq, added)
--     Appends after lock_thread; `t` is its answer. `events` is a JSON array of {id, type, task, payload}.
--     Refuses reserved types. With `retry` the ids that are already there are left out.
--
--   treadle.holds(thread_id, run_id, token, fence_key) -> boolean
--     The same question for reads: checks the incarnation and the capability, locks nothing.
--
-- Error codes of our own: TR002 another store incarnation (StoreFailedOver), TR003 will never be accepted
-- (StoreRejected; DETAIL holds the reason).
--
-- Lock order everywhere: thread row, then run row, then blobs by hash; several threads in id order.

DO $$
DECLARE
  wanted text;
BEGIN
  FOREACH wanted IN ARRAY ARRAY['treadle_owner', 'treadle_operator', 'treadle_gateway', 'treadle_agent'] LOOP
    BEGIN
      EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
      NULL;  -- roles belong to the whole server: another database of ours may have made it
    END;
  END LOOP;
  IF NOT pg_catalog.pg_has_role(current_user, 'treadle_owner', 'MEMBER') THEN
    EXECUTE format('GRANT treadle_owner TO %I', current_user);
  END IF;
END $$;

CREATE SCHEMA treadle AUTHORIZATION treadle_owner;
GRANT USAGE ON SCHEMA treadle TO treadle_operator, treadle_gateway, treadle_agent;

SET LOCAL ROLE treadle_owner;

-- Only the global form closes functions to PUBLIC; the IN SCHEMA form can only add rights.
ALTER DEFAULT PRIVILEGES FOR ROLE treadle_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE treadle_owner IN SCHEMA treadle GRANT SELECT ON TABLES TO treadle_operator;

CREATE TABLE treadle.migrations (
  version    integer PRIMARY KEY,
  name       text NOT NULL,
  digest     text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
);

-- One row: the history of WAL that our tokens belong to. A failed-over or restored server differs in one of the
-- two, and there an old owner's token could be current again (03-ownership, "Clocks, failover, identifiers").
CREATE TABLE treadle.store_incarnation (
  only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  timeline          text NOT NULL,
  system_identifier bigint NOT NULL,
  incarnation       integer NOT NULL DEFAULT 1,
  changed_at        timestamptz NOT NULL DEFAULT now()
);
INSERT INTO treadle.store_incarnation (timeline, system_identifier)
  SELECT substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), c.system_identifier FROM pg_control_system() c;

-- Nothing that an index covers changes on a write, so that every update of this row stays HOT.
CREATE TABLE treadle.threads (
  thread_id     uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  namespace     text NOT NULL,
  thread_key    text NOT NULL,
  name          text NOT NULL,
  uid           text NOT NULL,
  agent         text NOT NULL,
  max_queued    integer NOT NULL CHECK (max_queued >= 0),
  -- Below 2^53, so that JSON and Redis keep it exact. Only ever rises; the row is never made again.
  fencing_token bigint NOT NULL DEFAULT 0 CHECK (fencing_token >= 0 AND fencing_token < 9007199254740992),
  fence_key     bytea,
  active_run    text,
  holder        text,
  head_seq      bigint NOT NULL DEFAULT 0,
  head_chain    bytea NOT NULL DEFAULT '\x00000000000000000000000000000000',
  head_manifest uuid,
  thread_gen    integer NOT NULL DEFAULT 1,
  created_at    timestamptz NOT NULL DEFAULT now(),
  deleted_at    timestamptz,
  UNIQUE (namespace, thread_key)
) WITH (fillfactor = 50);

CREATE TABLE treadle.runs (
  run_id              text PRIMARY KEY CHECK (length(run_id) BETWEEN 1 AND 64),
  thread_id           uuid NOT NULL REFERENCES treadle.threads,
  namespace           text NOT NULL,
  name                text NOT NULL,
  status              text NOT NULL CHECK (status IN ('pending', 'assigned', 'running', 'finalizing', 'parked',
                                                      'success', 'error', 'timeout', 'cancelled', 'interrupted')),
  object_created      timestamptz NOT NULL,
  attempt             integer NOT NULL DEFAULT 0,
  token               bigint NOT NULL DEFAULT 0,
  spec_hash           text NOT NULL,
  input               jsonb NOT NULL,
  files               jsonb NOT NULL DEFAULT '[]',
  config              jsonb NOT NULL,
  baseline_manifest   uuid,
  cancel_action       text,
  cancel_requested_at timestamptz,
  stop_reason         text,
  model               text,
  usage               jsonb NOT NULL DEFAULT '{}',
  created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at          timestamptz,
  ended_at            timestamptz
) WITH (fillfactor = 70);

-- The answer to "may another run of this thread start?" (R18). A parked run keeps its slot.
CREATE UNIQUE INDEX one_active_run_per_thread ON treadle.runs (thread_id)
  WHERE status IN ('assigned', 'running', 'finalizing', 'parked');
CREATE INDEX runs_pending ON treadle.runs (thread_id, object_created, run_id) WHERE status = 'pending';
CREATE INDEX runs_open ON treadle.runs (run_id) WHERE ended_at IS NULL;
CREATE INDEX runs_ended ON treadle.runs (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE treadle.run_attempts (
  run_id    text NOT NULL REFERENCES treadle.runs,
  attempt   integer NOT NULL,
  token     bigint NOT NULL,
  key_hash  bytea NOT NULL,
  pod       text NOT NULL,
  pod_uid   text,
  node      text,
  started   timestamptz NOT NULL DEFAULT clock_timestamp(),
  last_seen timestamptz,
  ended     timestamptz,
  class     text,
  reason    text,
  PRIMARY KEY (run_id, attempt)
) WITH (fillfactor = 70);

-- Which attempt a pod may take, and the secret by which it does (10-agent-pods). Rows end with their run.
CREATE TABLE treadle.agent_pods (
  namespace  text NOT NULL,
  pod        text NOT NULL,
  pod_key    text NOT NULL,
  key_hash   bytea NOT NULL UNIQUE,
  run_id     text NOT NULL REFERENCES treadle.runs,
  attempt    integer NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (namespace, pod)
);
CREATE INDEX agent_pods_run ON treadle.agent_pods (run_id);

-- event_id is unique per thread only: a squatted id must block nobody else.
CREATE TABLE treadle.run_events (
  thread_id  uuid NOT NULL,
  seq        bigint NOT NULL,
  run_id     text NOT NULL,
  event_id   uuid NOT NULL,
  type       text NOT NULL,
  task_id    text,
  payload    jsonb NOT NULL,
  chain      bytea NOT NULL,
  token      bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (thread_id, seq),
  UNIQUE (thread_id, event_id)
);
CREATE INDEX run_events_run ON treadle.run_events (run_id, seq);

CREATE TABLE treadle.receipts (
  run_id     text NOT NULL REFERENCES treadle.runs,
  kind       text NOT NULL,
  digest     bytea NOT NULL,
  payload    jsonb NOT NULL,
  token      bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (run_id, kind)
);

-- Content-addressed: the server computes the hash, and sending the bytes is the only way to a thread_blobs row.
CREATE TABLE treadle.blobs (
  sha256 bytea PRIMARY KEY,
  size   integer NOT NULL,
  data   bytea NOT NULL
);
CREATE TABLE treadle.thread_blobs (
  thread_id uuid NOT NULL REFERENCES treadle.threads,
  sha256    bytea NOT NULL REFERENCES treadle.blobs,
  PRIMARY KEY (thread_id, sha256)
);
CREATE INDEX thread_blobs_sha256 ON treadle.thread_blobs (sha256);

CREATE TABLE treadle.workspace_manifests (
  thread_id   uuid NOT NULL REFERENCES treadle.threads,
  manifest_id uuid NOT NULL,
  run_id      text NOT NULL,
  entries     jsonb NOT NULL,
  token       bigint NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (thread_id, manifest_id)
);

-- ---------------------------------------------------------------------------------------------------------
-- Internal functions. They run inside the granted ones, as treadle_owner and with their search_path.

CREATE FUNCTION treadle.reject(p_reason text, p_message text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'TR003', MESSAGE = p_message, DETAIL = p_reason;
END $$;

CREATE FUNCTION treadle.require_incarnation() RETURNS void
LANGUAGE plpgsql AS $$
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
END $$;

CREATE FUNCTION treadle.lock_thread(p_thread uuid, p_run text, p_token bigint, p_key bytea)
RETURNS treadle.threads
LANGUAGE plpgsql AS $$
DECLARE
  t treadle.threads;
BEGIN
  PERFORM treadle.require_incarnation();
  -- NO KEY UPDATE, not SHARE: overlapping sharers would keep a takeover waiting for ever (03-ownership, Facts).
  SELECT * INTO t FROM treadle.threads x
   WHERE x.thread_id = p_thread AND x.active_run = p_run AND x.fencing_token = p_token AND x.fence_key = p_key
     FOR NO KEY UPDATE;
  RETURN t;
END $$;

CREATE FUNCTION treadle.holds(p_thread uuid, p_run text, p_token bigint, p_key bytea) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM treadle.require_incarnation();
  RETURN EXISTS (
    SELECT 1 FROM treadle.threads x
     WHERE x.thread_id = p_thread AND x.active_run = p_run AND x.fencing_token = p_token AND x.fence_key = p_key);
END $$;

-- Whether a role is a login of an agent, and not one that may administer the store.
CREATE FUNCTION treadle.is_agent(p_role oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
                  WHERE m.member = p_role AND g.rolname = 'treadle_agent')
     AND NOT pg_has_role(p_role, 'treadle_owner', 'MEMBER')
$$;

-- The bytes of a lower-case hex sha256; NULL for anything else.
CREATE FUNCTION treadle.hash_of(p_hex text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_hex ~ '^[0-9a-f]{64}$' THEN decode(p_hex, 'hex') END
$$;

CREATE FUNCTION treadle.log_name(t treadle.threads) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT t.thread_gen || 'i' || i.incarnation FROM treadle.store_incarnation i
$$;

-- Writes events behind the thread's head: gap-free, in commit order, chained. The row lock is the caller's.
CREATE FUNCTION treadle.write_events(t treadle.threads, p_run text, p_events jsonb,
                                     OUT first_seq bigint, OUT last_seq bigint, OUT added integer)
LANGUAGE plpgsql AS $$
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
END $$;

CREATE FUNCTION treadle.append_locked(t treadle.threads, p_run text, p_events jsonb, p_retry boolean,
                                      OUT first_seq bigint, OUT last_seq bigint, OUT added integer)
LANGUAGE plpgsql AS $$
DECLARE
  bad record;
BEGIN
  IF p_events IS NULL OR jsonb_typeof(p_events) <> 'array' OR jsonb_array_length(p_events) > 1000 THEN
    PERFORM treadle.reject('BatchTooLarge', 'events must be a JSON array of at most 1000 events: send several batches');
  END IF;
  SELECT x.v ->> 'type' AS type, x.v ->> 'task' AS task, x.v -> 'payload' AS payload INTO bad
    FROM jsonb_array_elements(p_events) x (v)
   WHERE (x.v ->> 'id') IS NULL
      OR coalesce(length(x.v ->> 'type') NOT BETWEEN 1 AND 64, true)
      OR x.v ->> 'type' IN ('run.end', 'run.delivery')
      OR length(x.v ->> 'task') > 256
      OR coalesce(jsonb_typeof(x.v -> 'payload') <> 'object', true)
      OR pg_column_size(x.v -> 'payload') > 524288
   LIMIT 1;
  IF bad.type IN ('run.end', 'run.delivery') THEN
    PERFORM treadle.reject('ReservedType', format('event type %s is written by a settlement only', bad.type));
  ELSIF FOUND THEN
    PERFORM treadle.reject('EventInvalid',
      'an event needs an id, a type of 1 to 64 characters, a task of at most 256, and an object of at most 512 kB as payload');
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
END $$;

-- Ends a run: end event, delivery event, receipt, terminal status, free slot. Both settlements come through here,
-- so that no other order of them exists. The row locks are the caller's; `t` carries the token that settles.
CREATE FUNCTION treadle.close_run(t treadle.threads, r treadle.runs, p_outcome text, p_end jsonb, p_receipt jsonb,
                                  p_end_id uuid, p_delivery_id uuid) RETURNS void
LANGUAGE plpgsql AS $$
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
END $$;

-- Stores bytes under their own hash and makes them readable by one thread. A retiring thread may remove the blob
-- between our two statements: the KEY SHARE lock holds it, and where it was removed we bring it again.
CREATE FUNCTION treadle.store_blob(p_thread uuid, p_data bytea) RETURNS bytea
LANGUAGE plpgsql AS $$
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
END $$;

-- ---------------------------------------------------------------------------------------------------------
-- What every program may ask before it starts.

CREATE FUNCTION treadle.schema_version() RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce(max(m.version), 0) FROM treadle.migrations m
$$;
GRANT EXECUTE ON FUNCTION treadle.schema_version() TO treadle_operator, treadle_gateway, treadle_agent;

GRANT SELECT ON treadle.migrations, treadle.store_incarnation, treadle.runs, treadle.run_events, treadle.receipts,
                treadle.workspace_manifests, treadle.blobs, treadle.thread_blobs TO treadle_gateway;
-- The gateway reads no secret: neither fence_key nor the hash of one.
GRANT SELECT (thread_id, namespace, thread_key, name, uid, agent, max_queued, fencing_token, active_run, holder,
              head_seq, head_chain, head_manifest, thread_gen, created_at, deleted_at)
  ON treadle.threads TO treadle_gateway;
GRANT SELECT (run_id, attempt, token, pod, pod_uid, node, started, last_seen, ended, class, reason)
  ON treadle.run_attempts TO treadle_gateway;
