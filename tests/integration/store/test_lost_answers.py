"""Every function, called again after its acknowledgement was lost, has had one effect and says so (R95).

A proxy swallows the answer of the first call: the server has committed, the client learns only that the
connection is gone.
"""

from typing import Any
from uuid import uuid4

import pytest

from support.answerless import Answerless
from support.invariants import violations
from support.repeatable import CASES
from support.store_world import World
from support.stores import Store
from treadle_api.records import Capability, RunStatus
from treadle_store import agent
from treadle_store.errors import StaleToken, StoreUnavailable
from treadle_store.pool import open_connection

# Reads, and what only a person runs.
NOT_REPEATED = {
    "take_assignment", "missing_blobs", "get_blob", "get_checkpoint", "read_checkpoint", "list_checkpoints",
    "get_delta_history", "newest_checkpoint_id", "schema_version", "fence_all", "end_blockers",
    "end_old_transactions",
    # Their second call finds nothing left to do; the checkpointer's own tests hold them.
    "delete_checkpoints_of_runs", "prune_checkpoints", "copy_checkpoints",
}  # fmt: skip


@pytest.mark.req("R95", "R50", "R53")
@pytest.mark.parametrize("name", CASES)
async def test_a_call_repeated_after_a_lost_answer_has_one_effect_and_says_so(
    store: Store, name: str
) -> None:
    case = CASES[name]
    admin = await store.connect("admin")
    world = World(await store.pool("operator"), await store.pool("agent"))
    call, proof = await case.make(world, admin)
    async with Answerless.before(getattr(store, case.program)) as proxy:
        connection = await open_connection(proxy.dsn, application="test")
        proxy.lose_next_answer()
        with pytest.raises(StoreUnavailable) as lost:
            await call(connection, False)
        assert lost.value.maybe_committed
        connection.terminate()

    answer = await call(await store.connect(case.program), True)

    assert case.says(answer), answer
    assert await admin.fetchval(proof) is True
    assert await violations(admin) == {}


async def test_every_function_that_changes_something_has_such_a_case(store: Store) -> None:
    granted = await (await store.connect("admin")).fetch(
        """SELECT DISTINCT p.proname FROM pg_proc p WHERE p.pronamespace = 'treadle'::regnamespace
              AND (has_function_privilege('treadle_agent', p.oid, 'EXECUTE')
                   OR has_function_privilege('treadle_operator', p.oid, 'EXECUTE'))"""
    )

    assert {row[0] for row in granted} - {name.split(" ")[0] for name in CASES} == NOT_REPEATED


async def test_only_the_attempt_s_own_key_learns_that_it_was_settled(store: Store) -> None:
    world = World(await store.pool("operator"), await store.pool("agent"))
    cap = await world.start()
    kwargs: dict[str, Any] = {"outcome": RunStatus.SUCCESS, "end": {}, "receipt": {}}
    await agent.settle_run(world.agent, cap, end_event_id=uuid4(), delivery_event_id=uuid4(), **kwargs)

    for wrong in (bytes(16), b"", cap.fence_key[:-1] + b"\x00"):
        guess = Capability(cap.thread_id, cap.run_id, cap.token, wrong)
        with pytest.raises(StaleToken):
            await agent.settle_run(
                world.agent, guess, end_event_id=uuid4(), delivery_event_id=uuid4(), **kwargs
            )
