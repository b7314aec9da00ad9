-- Roles, rights and tables. What may be done with them is in the functions of the later files.

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
  IF NOT (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN
    -- Since Postgres 16 whoever makes a role may administer it, and not become it.
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
CREATE INDEX runs_named ON treadle.runs (namespace, name, created_at DESC);

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
