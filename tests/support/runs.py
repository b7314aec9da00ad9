"""What must hold of every run's end, however many attempts it took."""

from collections import Counter
from typing import Any

from support.stored_runs import StoredRun, StoredRuns


async def outcome(runs: StoredRuns, run: StoredRun) -> dict[str, Any]:
    """What must not depend on how many attempts it took."""
    state = await runs.state(run)
    receipt = await runs.settled(run)
    return {
        "messages": [
            (m.type, m.content, [(c["id"], c["name"], c["args"]) for c in getattr(m, "tool_calls", [])])
            for m in state["messages"]
        ],
        "todos": state.get("todos"),
        "artifacts": state.get("artifacts"),
        "files": await runs.files(run),
        "outcome": receipt.payload["outcome"],
        "receipt_files": receipt.payload["artifacts"],
        "produced": receipt.payload["produced"],
    }


async def check_the_log(runs: StoredRuns, run: StoredRun) -> None:
    """One receipt, no event twice, no message told twice, steps without a gap, nothing late."""
    log = await runs.log(run)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    kinds = Counter(event.type for event in log)
    assert kinds["run.end"] == kinds["run.delivery"] == kinds["run.input"] == 1
    assert [log[-2].type, log[-1].type] == ["run.end", "run.delivery"]
    told = Counter(event.payload["id"] for event in log if event.type == "message")
    assert set(told.values()) == {1}
    state = await runs.state(run)
    # Parallel tools are told in the order in which they ended, and stand in the state in that of their calls.
    kept = {message.id for message in state["messages"]}
    assert set(told) == kept, (
        [event for event in log if event.type == "message" and event.payload["id"] not in kept],
        [message for message in state["messages"] if message.id not in told],
    )
    steps = await runs.steps(run)
    assert steps == list(range(-1, len(steps) - 1))
    receipts = await runs.operator.fetchval(
        "SELECT count(*) FROM treadle.receipts WHERE run_id = $1", run.run_id
    )
    assert receipts == 1
    tokens = [event.token for event in log]
    assert tokens == sorted(tokens), "a row of an older token behind a newer one is a late write"


async def rows(runs: StoredRuns, run: StoredRun) -> dict[str, int]:
    """How many rows of each kind the thread has: a late write would add one."""
    counted = {}
    for table in (
        "checkpoints",
        "checkpoint_writes",
        "checkpoint_blobs",
        "run_events",
        "workspace_manifests",
        "thread_blobs",
    ):
        counted[table] = await runs.operator.fetchval(
            f"SELECT count(*) FROM treadle.{table} WHERE thread_id = $1", run.thread_id
        )
    return counted
