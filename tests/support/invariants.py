"""What must hold of a whole store whatever happened to it, in queries that count violations."""

import hashlib

from treadle_store.pool import Connection

_ACTIVE = "('assigned', 'running', 'finalizing', 'parked')"
_QUERIES = {
    "threads with two active runs": f"""
        SELECT count(*) FROM (SELECT thread_id FROM treadle.runs WHERE status IN {_ACTIVE}
                               GROUP BY 1 HAVING count(*) > 1) x""",
    "slots without an active run": f"""
        SELECT count(*) FROM treadle.threads t WHERE t.active_run IS NOT NULL AND NOT EXISTS (
          SELECT 1 FROM treadle.runs r
           WHERE r.run_id = t.active_run AND r.thread_id = t.thread_id AND r.status IN {_ACTIVE})""",
    "active runs without their slot": f"""
        SELECT count(*) FROM treadle.runs r JOIN treadle.threads t USING (thread_id)
         WHERE r.status IN {_ACTIVE} AND t.active_run IS DISTINCT FROM r.run_id""",
    "ended runs without a receipt": """
        SELECT count(*) FROM treadle.runs r WHERE r.ended_at IS NOT NULL AND NOT EXISTS (
           SELECT 1 FROM treadle.receipts q WHERE q.run_id = r.run_id AND q.token = r.token)""",
    "receipts of runs that have not ended": """
        SELECT count(*) FROM treadle.receipts q JOIN treadle.runs r USING (run_id)
         WHERE r.ended_at IS NULL""",
    "status that disagrees with ended_at": f"""
        SELECT count(*) FROM treadle.runs
         WHERE (ended_at IS NULL) <> (status = 'pending' OR status IN {_ACTIVE})""",
    "ended runs without exactly one end and delivery event": """
        SELECT count(*) FROM treadle.runs r JOIN treadle.threads t USING (thread_id)
         WHERE r.ended_at IS NOT NULL AND t.deleted_at IS NULL AND t.thread_gen = 1 AND (
           SELECT array_agg(e.type ORDER BY e.seq) FROM treadle.run_events e
            WHERE e.run_id = r.run_id AND e.type IN ('run.end', 'run.delivery'))
           IS DISTINCT FROM ARRAY['run.end', 'run.delivery']""",
    "runs whose attempts are not 1..n": """
        SELECT count(*) FROM treadle.runs r WHERE r.attempt <> (
          SELECT count(*) FROM treadle.run_attempts a WHERE a.run_id = r.run_id)""",
    "threads whose token is below one that was given": """
        SELECT count(*) FROM treadle.threads t WHERE EXISTS (
          SELECT 1 FROM treadle.runs r JOIN treadle.run_attempts a USING (run_id)
           WHERE r.thread_id = t.thread_id AND a.token > t.fencing_token)""",
    "digests that are not of their payload": """
        SELECT count(*) FROM treadle.receipts WHERE digest <> sha256(convert_to(payload::text, 'UTF8'))""",
}


async def violations(admin: Connection) -> dict[str, int]:
    """The broken invariants with their counts; empty when the store is whole."""
    found = {name: await admin.fetchval(query) for name, query in _QUERIES.items()}
    found["threads whose log has a gap or a broken chain"] = await _broken_logs(admin)
    return {name: count for name, count in found.items() if count}


async def _broken_logs(admin: Connection) -> int:
    events = await admin.fetch(
        "SELECT thread_id, seq, event_id, type, chain FROM treadle.run_events ORDER BY thread_id, seq"
    )
    # A retired thread has no log; its row keeps the head only until it is revived.
    living = await admin.fetch("SELECT * FROM treadle.threads WHERE deleted_at IS NULL")
    heads = {thread["thread_id"]: thread for thread in living}
    chains = {thread: (0, bytes(16)) for thread in heads}
    broken = {event["thread_id"] for event in events} - set(heads)
    for event in events:
        if event["thread_id"] not in heads:
            continue
        seq, link = chains[event["thread_id"]]
        text = link + event["event_id"].bytes + (seq + 1).to_bytes(8, "big") + event["type"].encode()
        chains[event["thread_id"]] = (seq + 1, hashlib.sha256(text).digest()[:16])
        if (event["seq"], event["chain"]) != chains[event["thread_id"]]:
            broken.add(event["thread_id"])
    for thread, (seq, link) in chains.items():
        if (heads[thread]["head_seq"], heads[thread]["head_chain"]) != (seq, link):
            broken.add(thread)
    return len(broken)
