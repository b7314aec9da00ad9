-- A run as the operator and the gateway read it: its row, its thread's authority, its receipt, all of one instant.
-- What an agent wrote (metadata, receipt) is taken apart so that no value of it can make the query fail: one agent
-- would otherwise keep the operator from reading every run of the page.

SET LOCAL ROLE treadle_owner;

CREATE VIEW treadle.run_records AS
SELECT r.run_id, r.namespace, r.name, r.thread_id, t.thread_key, r.status, r.attempt, r.token,
       t.fencing_token AS thread_token, t.active_run, t.holder,
       CASE WHEN r.status = 'pending' THEN (
         SELECT count(*) FROM treadle.runs o
          WHERE o.thread_id = r.thread_id AND o.status = 'pending'
            AND (o.object_created, o.run_id) < (r.object_created, r.run_id))
       ELSE -1 END AS queue_position,
       r.spec_hash, r.config, r.cancel_action, r.stop_reason, r.created_at, r.started_at, r.ended_at,
       a.attempts, a.retries, a.disruptions,
       CASE WHEN r.ended_at IS NULL THEN h.checkpoint_id ELSE q.payload ->> 'checkpoint' END AS checkpoint_id,
       CASE WHEN r.ended_at IS NULL OR h.checkpoint_id = q.payload ->> 'checkpoint' THEN h.step END AS checkpoint_step,
       r.usage, r.model, t.thread_gen || 'i' || i.incarnation AS log,
       q.token AS receipt_token, encode(q.digest, 'hex') AS receipt_digest, q.payload AS receipt_payload,
       q.created_at AS receipt_created_at
  FROM treadle.runs r
  JOIN treadle.threads t ON t.thread_id = r.thread_id
 CROSS JOIN treadle.store_incarnation i
  LEFT JOIN treadle.receipts q ON q.run_id = r.run_id AND q.kind = 'run.delivery'
 CROSS JOIN LATERAL (
   SELECT count(*) FILTER (WHERE n.class = 'retry')::integer AS retries,
          count(*) FILTER (WHERE n.class = 'disruption')::integer AS disruptions,
          coalesce(jsonb_agg(jsonb_build_object(
            'attempt', n.attempt, 'token', n.token, 'pod', n.pod, 'pod_uid', n.pod_uid, 'node', n.node,
            'started', n.started, 'ended', n.ended, 'class', n.class, 'reason', n.reason) ORDER BY n.attempt)
            FILTER (WHERE n.attempt > r.attempt - 10), '[]') AS attempts
     FROM treadle.run_attempts n WHERE n.run_id = r.run_id) a
  LEFT JOIN LATERAL (
   SELECT c.checkpoint_id, substring(c.metadata ->> 'step' FROM '^-?[0-9]{1,9}$')::integer AS step
     FROM treadle.checkpoints c
    WHERE r.attempt > 0 AND c.thread_id = r.thread_id AND c.checkpoint_ns = ''
      AND (r.ended_at IS NULL OR c.checkpoint_id = q.payload ->> 'checkpoint')
    ORDER BY c.token DESC, c.checkpoint_id DESC LIMIT 1) h ON true;

GRANT SELECT ON treadle.run_records TO treadle_operator, treadle_gateway;
