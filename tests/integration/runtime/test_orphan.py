"""An agent whose keeper is gone is nobody's: it ends by itself, whatever it does and whatever else is away.

In a pod the keeper is process 1 and the kernel ends the agent with it; here both are bare processes.
"""

from urllib.parse import urlsplit

import pytest

from support.agent_process import Harness, Pod, Run
from support.eventually import eventually
from support.gate import Gate
from support.scripts import configuration
from support.user_graphs import STUCK
from treadle_api.contract import ENV_DRAIN_SECONDS, ENV_STORE_DSN, ExitCode
from treadle_api.names import lease_name

DEADLINE = 20.0
"""Seconds: less than the store's clients would go on trying."""
STUCK_GRAPHS = {
    "deaf to its cancellation": "support.user_graphs:swallowing",
    "in a thread": "support.user_graphs:threaded",
    "with its loop": "support.user_graphs:blocking",
}


def gate_before(dsn: str) -> tuple[Gate, str]:
    """A gate to the store, and the DSN that leads through it once it is open."""
    address = urlsplit(dsn)
    assert address.hostname
    assert address.port
    return Gate(address.hostname, address.port), f"{address.hostname}:{address.port}"


async def stuck(harness: Harness, graph: str, dsn: str, *, drain: str = "20") -> tuple[Pod, int, Run]:
    """An attempt whose node will not come back, and its agent's pid."""
    run = await harness.admit(configuration([{"text": "unused"}], graph=graph))
    pod = await harness.attempt(run, environment={ENV_STORE_DSN: dsn, ENV_DRAIN_SECONDS: drain})

    async def probe() -> bool:
        return STUCK in pod.log

    await eventually(probe, "the node is stuck", within=30)
    agent = pod.agent()
    assert agent is not None
    return pod, agent, run


@pytest.mark.timeout(180)
@pytest.mark.req("R20")
@pytest.mark.parametrize("away", ["there", "refusing", "silent"])
@pytest.mark.parametrize("graph", STUCK_GRAPHS.values(), ids=STUCK_GRAPHS)
async def test_an_agent_ends_when_its_keeper_is_killed(harness: Harness, graph: str, away: str) -> None:
    gate, address = gate_before(harness.store.agent)
    async with gate:
        dsn = harness.store.agent.replace(address, f"127.0.0.1:{gate.port}")
        pod, agent, run = await stuck(harness, graph, dsn)
        if away == "refusing":
            await gate.shut()
        elif away == "silent":
            gate.hold()
        pod.kill("keeper")
        await harness.agent_gone(agent, within=DEADLINE)
    assert await harness.receipt(run) is None


@pytest.mark.timeout(180)
@pytest.mark.req("R20")
@pytest.mark.parametrize("graph", STUCK_GRAPHS.values(), ids=STUCK_GRAPHS)
async def test_an_agent_that_lost_its_lease_leaves_nothing_of_its_graph_behind(
    harness: Harness, graph: str
) -> None:
    gate, address = gate_before(harness.store.agent)
    async with gate:
        dsn = harness.store.agent.replace(address, f"127.0.0.1:{gate.port}")
        pod, agent, run = await stuck(harness, graph, dsn)
        gate.hold()
        harness.leases.delete(harness.namespace, lease_name(run.run_id))
        await harness.agent_gone(agent, within=DEADLINE)
        assert await pod.ended() == ExitCode.FENCED


@pytest.mark.timeout(180)
@pytest.mark.parametrize("graph", STUCK_GRAPHS.values(), ids=STUCK_GRAPHS)
async def test_sigterm_ends_a_pod_with_a_stuck_node_and_no_store(harness: Harness, graph: str) -> None:
    gate, address = gate_before(harness.store.agent)
    async with gate:
        dsn = harness.store.agent.replace(address, f"127.0.0.1:{gate.port}")
        pod, agent, _ = await stuck(harness, graph, dsn, drain="2")
        gate.hold()
        pod.process.terminate()
        await harness.agent_gone(agent, within=DEADLINE)
        await pod.ended()
