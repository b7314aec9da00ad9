"""A killed process costs the step it was in, and nothing that was acknowledged."""

import asyncio
import json
import os
import signal
import sys

import pytest
from langchain_core.runnables import RunnableConfig

from support.claims import Claimer
from support.counting_graph import counting_graph
from support.stores import Store
from treadle_api.records import Capability
from treadle_runtime.checkpointer import TreadleSaver
from treadle_store.errors import StaleToken
from treadle_store.pool import Pool

UNTIL = 6


async def killed_in_step(store: Store, capability: Capability, stop_at: int, given: object) -> None:
    """Run the graph in a process of its own and kill it, without warning, inside step `stop_at`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "support.counting_graph",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    told = {
        "dsn": store.agent,
        "thread": capability.thread_id,
        "run": capability.run_id,
        "token": capability.token,
        "key": capability.fence_key.hex(),
        "stop_at": stop_at,
        "until": UNTIL,
        "input": given,
    }
    process.stdin.write(json.dumps(told).encode() + b"\n")
    try:
        line = await asyncio.wait_for(process.stdout.readline(), timeout=60)
        assert json.loads(line) == {"at": stop_at}
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


@pytest.mark.req("R79")
async def test_a_graph_killed_in_the_middle_goes_on_from_its_last_checkpoint(
    store: Store, claimer: Claimer, agent_pool: Pool
) -> None:
    capability = await claimer.new_run()
    await killed_in_step(store, capability, 3, {"count": 0})
    capability = await claimer.take_over(capability)
    await killed_in_step(store, capability, 5, None)
    capability = await claimer.take_over(capability)

    executed: list[int] = []

    async def step(number: int) -> None:
        executed.append(number)

    saver = await TreadleSaver.open(agent_pool, capability)
    graph = counting_graph(saver, until=UNTIL, step=step)
    config: RunnableConfig = {"configurable": {"thread_id": capability.thread_id}}
    before = await graph.aget_state(config)
    assert [task.name for task in before.tasks] == ["count"]
    final = await graph.ainvoke(None, config, durability="sync")

    assert executed == [5, 6]
    assert final["log"] == [f"{what} {n}" for n in range(1, UNTIL + 1) for what in ("count", "beside")]
    history = [found async for found in saver.alist(config)]
    steps = [found.metadata["step"] for found in reversed(history)]
    assert steps == list(range(-1, 2 * UNTIL + 1))
    ids = [found.config["configurable"]["checkpoint_id"] for found in history]
    parents = [
        found.parent_config["configurable"]["checkpoint_id"] for found in history if found.parent_config
    ]
    assert parents == ids[1:]
    assert ids == sorted(ids, reverse=True)
    assert (await graph.aget_state(config)).tasks == ()


@pytest.mark.req("R20")
async def test_a_graph_that_lost_its_thread_stops_before_the_next_node(
    claimer: Claimer, agent_pool: Pool
) -> None:
    capability = await claimer.new_run()
    executed: list[int] = []

    async def step(number: int) -> None:
        executed.append(number)
        if number == 3:
            await claimer.take_over(capability)

    graph = counting_graph(await TreadleSaver.open(agent_pool, capability), until=UNTIL, step=step)
    config: RunnableConfig = {"configurable": {"thread_id": capability.thread_id}}
    with pytest.raises(StaleToken):
        await graph.ainvoke({"count": 0}, config, durability="sync")
    assert executed == [1, 2, 3]
