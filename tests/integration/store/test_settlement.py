"""How runs end: one statement, one receipt, and nothing after it."""

import pytest

from support.store_world import World, events, settle
from support.stores import Store
from treadle_api.records import (
    RunRecord,
    RunStatus,
    RunUID,
    Settled,
)
from treadle_store import agent, runs
from treadle_store.errors import CancelWon, StaleToken, StoreRejected
from treadle_store.events import append_events, list_events
from treadle_store.receipts import read_receipt


@pytest.fixture
async def world(store: Store) -> World:
    return World(await store.pool("operator"), await store.pool("agent"))


async def _record(world: World, run_id: RunUID) -> RunRecord:
    return (await runs.read_runs(world.operator, [run_id]))[run_id]


@pytest.mark.req("R24", "R53")
async def test_a_settlement_writes_end_event_receipt_and_status_together_or_not_at_all(
    world: World, store: Store
) -> None:
    cap = await world.start()
    await append_events(world.agent, cap, events(2))
    missing = {"path": "a", "sha256": "0" * 64, "bytes": 1}
    with pytest.raises(StoreRejected, match="ArtifactMissing: presented file a "):
        await settle(world.agent, cap, receipt={"artifacts": [missing]})
    assert (await _record(world, cap.run_id)).status is RunStatus.RUNNING

    assert await settle(world.agent, cap) == Settled("settled", RunStatus.SUCCESS)

    log = await list_events(world.operator, cap.thread_id)
    assert [event.type for event in log] == ["message", "message", "run.end", "run.delivery"]
    receipt = await read_receipt(world.operator, cap.run_id)
    assert receipt is not None
    assert log[-1].payload == receipt.payload


async def test_terminal_is_terminal(world: World) -> None:
    cap = await world.start()
    await settle(world.agent, cap)

    assert await world.assign(cap.run_id, 2, cap.token) is None
    assert await runs.request_cancel(world.operator, cap.run_id, "keep", "x") == (RunStatus.SUCCESS, None)
    for write in (agent.heartbeat(world.agent, cap), append_events(world.agent, cap, events(1))):
        with pytest.raises(StaleToken):
            await write


async def test_after_an_accepted_cancel_only_cancelled_is_settled(world: World) -> None:
    cap = await world.start()
    await runs.request_cancel(world.operator, cap.run_id, "keep", "Cancelled")

    assert await agent.heartbeat(world.agent, cap) == "keep"
    assert (await append_events(world.agent, cap, events(1))).cancel == "keep"
    with pytest.raises(CancelWon):
        await agent.begin_finalizing(world.agent, cap)
    for outcome in (RunStatus.SUCCESS, RunStatus.ERROR):
        assert await settle(world.agent, cap, outcome) == Settled("cancel_won", RunStatus.RUNNING)
    assert (await settle(world.agent, cap, RunStatus.CANCELLED)).result == "settled"


async def test_an_orphan_s_receipt_says_what_is_known(world: World) -> None:
    cap = await world.start()
    await runs.settle_orphan(
        world.operator,
        run_id=cap.run_id,
        expected_token=cap.token,
        outcome=RunStatus.ERROR,
        reason="BackoffLimitExceeded",
        message="three attempts ended without an answer",
    )

    receipt = await read_receipt(world.operator, cap.run_id)
    assert receipt is not None
    assert receipt.payload == {
        "run": cap.run_id, "thread": (await _record(world, cap.run_id)).thread_key, "attempt": 1, "token": 2,
        "outcome": "error", "reason": "BackoffLimitExceeded",
        "message": "three attempts ended without an answer",
        "checkpoint": None, "message_id": None, "summary": "", "produced": [], "presented": [], "matched": [],
        "artifacts": [], "coverage": "Unknown", "requirement": "All", "journal_complete": False, "usage": {},
        "model": None,
    }  # fmt: skip
    with pytest.raises(StaleToken):
        await settle(world.agent, cap)


async def test_a_queued_run_is_settled_without_disturbing_the_active_one(world: World) -> None:
    cap = await world.start()
    queued = await world.admit(cap.thread_id)

    answer = await runs.settle_orphan(
        world.operator, run_id=queued, expected_token=cap.token, outcome=RunStatus.CANCELLED,
        reason="Deleted", message="The Run was deleted.",
    )  # fmt: skip

    assert answer == Settled("settled", RunStatus.CANCELLED)
    assert (await append_events(world.agent, cap, events(1))).first == 3
    assert (await settle(world.agent, cap)).result == "settled"


async def test_an_orphan_whose_token_moved_on_is_left_alone(world: World) -> None:
    cap = await world.start()
    await world.take_over(cap)
    answer = await runs.settle_orphan(
        world.operator,
        run_id=cap.run_id,
        expected_token=cap.token,
        outcome=RunStatus.ERROR,
        reason="x",
        message="",
    )
    assert answer is None
