-- Internal functions that every fenced write is built from. No role may EXECUTE them; the granted functions call
-- them, as treadle_owner and with their search_path.
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

SET LOCAL ROLE treadle_owner;

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
