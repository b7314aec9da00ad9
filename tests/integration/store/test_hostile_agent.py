"""Code with an agent's database credential reads and writes its own thread only (R92), whatever it sends.

Each test is an attack by that role: with a capability of its own, and everything an agent can know of a
victim.
"""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from support.invariants import violations
from support.store_world import HOLDER, World, events, settle
from support.stores import Store
from treadle_api.records import Capability, FencingToken, ManifestEntry, RunUID, ThreadID
from treadle_store import agent, checkpoints, runs, steps, workspace
from treadle_store.errors import StaleToken, StoreRejected
from treadle_store.events import append_events, list_events
from treadle_store.pool import Connection

pytestmark = pytest.mark.req("R92")

_FENCED = """
SELECT p.proname, array_agg(format_type(t.oid, NULL) ORDER BY t.n) AS types
  FROM pg_proc p, unnest(p.proargtypes) WITH ORDINALITY t (oid, n)
 WHERE p.pronamespace = 'treadle'::regnamespace AND has_function_privilege('treadle_agent', p.oid, 'EXECUTE')
 GROUP BY p.oid, p.proname HAVING count(*) >= 4
   AND (array_agg(format_type(t.oid, NULL) ORDER BY t.n))[1:4] = ARRAY['uuid', 'text', 'bigint', 'bytea']"""


async def _fingerprint(admin: Connection) -> dict[str, str]:
    """Every table's content; `last_seen` is the attacker's own."""
    tables = await admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'treadle' ORDER BY 1")
    return {
        table: await admin.fetchval(
            f"SELECT md5(coalesce(string_agg(x::text, ',' ORDER BY x::text), '')) FROM treadle.{table} x"
        )
        for (table,) in tables
    }


async def _pair(store: Store) -> tuple[World, Capability, Capability]:
    """A world, the attacker's capability, and a victim's."""
    world = World(await store.pool("operator"), await store.pool("agent"))
    return world, await world.start(), await world.start()


def _guesses(mine: Capability, victim: Capability) -> list[tuple[object, object, object, object]]:
    keys: list[object] = [mine.fence_key, None, b"", bytes(16), bytes(32)]
    guesses: list[tuple[object, object, object, object]] = []
    for key in keys:
        guesses += [
            (victim.thread_id, victim.run_id, token, key) for token in (victim.token, 0, -1, 2**62, None)
        ]
    guesses += [
        (victim.thread_id, mine.run_id, mine.token, mine.fence_key),
        (mine.thread_id, victim.run_id, mine.token, mine.fence_key),
        (mine.thread_id, mine.run_id, mine.token + 1, mine.fence_key),
        (None, mine.run_id, mine.token, mine.fence_key),
        (str(uuid4()), victim.run_id, victim.token, victim.fence_key),
    ]
    return guesses


async def test_no_function_answers_to_a_guessed_capability(store: Store) -> None:
    _, mine, victim = await _pair(store)
    admin, attacker = await store.connect("admin"), await store.connect("agent")
    functions = await admin.fetch(_FENCED)
    assert len(functions) >= 18
    before = await _fingerprint(admin)

    for name, types in functions:
        rest = "".join(f", NULL::{kind}" for kind in types[4:])
        for guess in _guesses(mine, victim):
            # copy_checkpoints takes a second capability and must refuse this one already.
            sql = f"SELECT * FROM treadle.{name}($1::uuid, $2::text, $3::bigint, $4::bytea{rest})"
            row = await attacker.fetchrow(sql, *guess)
            assert row is None or row.get("held") is False, (name, guess)

    assert await _fingerprint(admin) == before


async def test_temporary_tables_shadow_nothing_even_where_they_are_allowed(store: Store) -> None:
    _, mine, victim = await _pair(store)
    admin, attacker = await store.connect("admin"), await store.connect("agent")
    await admin.execute(f"GRANT TEMPORARY ON DATABASE {store.database} TO PUBLIC")
    await attacker.execute(
        """CREATE TEMPORARY TABLE threads (thread_id uuid, active_run text, fencing_token bigint,
             fence_key bytea, head_seq bigint, head_chain bytea, holder text);
           CREATE TEMPORARY TABLE run_events (thread_id uuid, seq bigint);
           CREATE TEMPORARY TABLE store_incarnation (timeline text, system_identifier bigint);
           SET search_path = pg_temp, treadle, pg_catalog"""
    )
    forged = b"forged key of 16"
    await attacker.execute(
        "INSERT INTO pg_temp.threads VALUES ($1::uuid, $2, $3, $4, 0, $5, NULL)",
        victim.thread_id, victim.run_id, victim.token, forged, bytes(16),
    )  # fmt: skip
    before = await _fingerprint(admin)

    with pytest.raises(StaleToken):
        await append_events(attacker, replace(victim, fence_key=forged), events(1))

    assert await _fingerprint(admin) == before
    assert (await append_events(attacker, mine, events(1))).new == 1


async def test_a_hash_gives_no_foreign_bytes(store: Store) -> None:
    world, mine, victim = await _pair(store)
    secret = b"the victim's report"
    sha256 = await workspace.put_blob(world.agent, victim, secret)
    entry = ManifestEntry("stolen", sha256, len(secret), 0o644, "text/plain")

    assert await workspace.missing_blobs(world.agent, mine, [sha256]) == {sha256}
    with pytest.raises(StoreRejected, match="BlobMissing"):
        await workspace.get_blob(world.agent, mine, sha256)
    with pytest.raises(StoreRejected, match="BlobMissing"):
        await workspace.put_manifest(world.agent, mine, [entry], uuid4())
    artifact = {"path": "stolen", "sha256": sha256, "bytes": len(secret), "media_type": "text/plain"}
    with pytest.raises(StoreRejected, match="ArtifactMissing"):
        await settle(world.agent, mine, receipt={"artifacts": [artifact]})

    await settle(world.agent, victim, receipt={"artifacts": [artifact]})
    gateway = await store.pool("gateway")
    assert (await workspace.read_artifact(gateway, victim.run_id, "stolen") or (None, None))[1] == secret
    assert await workspace.read_artifact(gateway, mine.run_id, "stolen") is None


async def test_a_receipt_cannot_claim_another_size_or_speak_for_another_run(store: Store) -> None:
    world, mine, victim = await _pair(store)
    sha256 = await workspace.put_blob(world.agent, mine, b"four")
    for size in (3, 5, -1, "4", None):
        artifact = {"path": "a", "sha256": sha256, "bytes": size}
        with pytest.raises(StoreRejected, match="ArtifactMissing"):
            await settle(world.agent, mine, receipt={"artifacts": [artifact]})
    forged = {"run": victim.run_id, "token": 99, "attempt": 7, "thread": "x", "outcome": "error"}

    await settle(world.agent, mine, receipt=forged)

    payload = await (await store.connect("admin")).fetchval("SELECT payload FROM treadle.receipts")
    assert (payload["run"], payload["token"], payload["attempt"], payload["outcome"]) == (
        mine.run_id, mine.token, 1, "success",
    )  # fmt: skip


async def test_a_squatted_event_id_blocks_nobody(store: Store) -> None:
    world, mine, victim = await _pair(store)
    foreseen = events(3)
    await append_events(world.agent, mine, foreseen)

    assert (await append_events(world.agent, victim, foreseen)).new == 3
    assert (await append_events(world.agent, victim, foreseen, retry=True)).new == 0
    operator = await store.pool("operator")
    assert [e.event_id for e in await list_events(operator, victim.thread_id)] == [
        e.event_id for e in foreseen
    ]


@pytest.mark.parametrize("kind", ["run.end", "run.delivery"])
async def test_only_a_settlement_writes_the_events_that_end_a_run(store: Store, kind: str) -> None:
    world, mine, _ = await _pair(store)
    with pytest.raises(StoreRejected, match="ReservedType"):
        await append_events(world.agent, mine, [*events(1), *events(1, kind)])
    with pytest.raises(StoreRejected, match="ReservedType"):
        await steps.commit_step(world.agent, mine, events=events(1, kind))
    assert await list_events(world.operator, mine.thread_id) == []


async def test_a_pod_key_is_good_for_its_own_attempt_until_another_pod_has_claimed_it(store: Store) -> None:
    world, _, victim = await _pair(store)
    assigned = await world.assign(victim.run_id, 2, victim.token)
    assert assigned is not None
    for guess in ("", "0" * 64, assigned.pod_key[:-1], assigned.pod_key.upper() + "x"):
        assert await agent.take_assignment(world.agent, guess, "uid") is None
    taken = await agent.take_assignment(world.agent, assigned.pod_key, HOLDER[0])
    assert taken is not None
    await agent.claim_run(world.agent, taken.capability, *HOLDER)

    assert await agent.take_assignment(world.agent, assigned.pod_key, "another-pod") is None
    assert await agent.take_assignment(world.agent, assigned.pod_key, HOLDER[0]) == taken
    with pytest.raises(StaleToken):
        await agent.claim_run(world.agent, taken.capability, "another-pod", "nonce")
    with pytest.raises(StaleToken):
        await agent.claim_run(world.agent, taken.capability, HOLDER[0], "another nonce")
    await world.take_over(taken.capability, 3)
    assert await agent.take_assignment(world.agent, assigned.pod_key, HOLDER[0]) is None


async def test_nothing_of_ours_notifies_and_a_flood_of_notifications_stops_nothing(store: Store) -> None:
    world, mine, victim = await _pair(store)
    admin, attacker, listener = [await store.connect(role) for role in ("admin", "agent", "agent")]
    ours = "SELECT proname FROM pg_proc WHERE pronamespace = 'treadle'::regnamespace"
    assert await admin.fetch(rf"{ours} AND prosrc ~* '\m(pg_)?notify\M'") == []
    await listener.execute("LISTEN flood; BEGIN")
    await listener.execute("SELECT 1")
    for _ in range(20):
        await attacker.execute(";".join(f"NOTIFY flood, '{uuid4().hex * 200}'" for _ in range(50)))

    assert (await settle(world.agent, victim)).result == "settled"
    assert await world.assign(mine.run_id, 2, mine.token) is not None


async def test_values_that_are_no_json_object_harm_only_their_sender(store: Store) -> None:
    _, mine, _ = await _pair(store)
    attacker, admin = await store.connect("agent"), await store.connect("admin")
    args = (mine.thread_id, mine.run_id, mine.token, mine.fence_key)
    sql = "SELECT * FROM treadle.append_events($1::uuid, $2, $3, $4, $5, false)"
    before = await _fingerprint(admin)
    fresh = str(uuid4())
    batches: list[Any] = [
        None, {}, "x", 7, [1], [{}], [{"id": fresh}], [None], [[]],
        [{"id": "no uuid", "type": "message", "payload": {}}],
        [{"id": fresh, "type": "message", "payload": []}],
        [{"id": fresh, "type": "message\ndata: forged", "payload": {}}],
        [{"id": fresh, "type": "m" * 65, "payload": {}}],
        [{"id": fresh, "type": "message", "task": "t" * 257, "payload": {}}],
        [{"id": fresh, "type": "message", "payload": {"x": "y" * 600_000}}],
        [{"id": fresh, "type": "message", "payload": {}}] * 1001,
        [{"id": fresh, "type": "message", "payload": {}}] * 2,
    ]  # fmt: skip
    for batch in batches:
        with pytest.raises(asyncpg.PostgresError):
            await attacker.fetch(sql, *args, batch)
    assert await _fingerprint(admin) == before
    assert await violations(admin) == {}


async def test_a_thousand_guesses_of_a_key_find_nothing(store: Store) -> None:
    world, mine, victim = await _pair(store)
    guesses = [
        Capability(
            ThreadID(victim.thread_id), RunUID(victim.run_id), FencingToken(victim.token), uuid4().bytes
        )
        for _ in range(1000)
    ]
    answers = await asyncio.gather(
        *(agent.heartbeat(world.agent, guess) for guess in guesses), return_exceptions=True
    )
    assert all(isinstance(answer, StaleToken) for answer in answers)
    assert await agent.heartbeat(world.agent, mine) is None


async def test_nothing_an_agent_wrote_makes_the_reads_of_others_fail(store: Store) -> None:
    world, mine, victim = await _pair(store)
    steps_written: list[Any] = [1.5, 1e300, -(10**400), "x", None, [], {}, True, 7]
    for number, step in enumerate(steps_written):
        head = checkpoints.CheckpointRow("", f"{number:03}", None, {}, {"step": step})
        await checkpoints.put_checkpoint(world.agent, mine, head)
        records = await runs.read_runs(world.operator, [mine.run_id, victim.run_id])
        assert set(records) == {mine.run_id, victim.run_id}
        assert records[mine.run_id].checkpoint_step == (7 if step == 7 else None)
    sha256 = await workspace.put_blob(world.agent, mine, b"data")
    artifact = {"path": "a", "sha256": sha256, "bytes": 4, "media_type": "text/html\r\nSet-Cookie: x"}
    strange = {"usage": [1], "model": {"a": 1}, "checkpoint": {"b": 2}, "reason": 5, "artifacts": [artifact]}
    await settle(world.agent, mine, receipt=strange)
    await settle(world.agent, victim, receipt={"artifacts": None})

    gateway = await store.pool("gateway")
    assert len(await runs.read_runs(gateway, [mine.run_id, victim.run_id])) == 2
    found = await workspace.read_artifact(gateway, mine.run_id, "a")
    assert found is not None
    assert found[0].media_type == "application/octet-stream"
    assert await workspace.read_artifact(gateway, victim.run_id, "a") is None
