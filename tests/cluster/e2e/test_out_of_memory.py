"""An agent that needs more memory than its container may have: named so, and on from the last step once it
may have more."""

import pytest

from support.e2e import Stage, condition
from support.e2e_bad_input import Object, agent, config_map, run, script
from support.eventually import eventually
from support.kstatus import kstatus
from support.runs import check_the_log
from treadle_api.reasons import Reason

pytestmark = pytest.mark.timeout(420)

SMALL, LARGE = "256Mi", "2Gi"
TURNED_INTO, PAGE = 5_000, 60_000
"""Each of PAGE characters is replaced by so many others: 300 MB for a moment, which the workspace refuses."""


def hungry(name: str, limit: str) -> Object:
    amounts = {"requests": {"memory": "64Mi"}, "limits": {"memory": limit}}
    return agent(name, "hungry", podTemplate={"resources": amounts})


def call(tool: str, **args: str | bool) -> Object:
    return {"tool_calls": [{"name": tool, "id": tool, "args": args}]}


OBJECTS = (
    script(
        "hungry",
        call("write_file", path="kept.txt", content="kept"),
        call("edit_file", path="page.txt", old="x", new="y" * TURNED_INTO, every=True),
        {"text": "The page stays: {{ results.edit_file }}"},
    ),
    config_map("page", page="x" * PAGE),
)
FILES = [{"path": "page.txt", "configMapKeyRef": {"name": "page", "key": "page"}}]


async def ends(stage: Stage, name: str) -> list[str]:
    """How the kubelet says that the containers of the Run's attempts ended, once all have."""

    async def probe() -> list[str]:
        states = [pod["status"]["containerStatuses"][0]["state"] for pod in await stage.pods(name)]
        told = [state["terminated"]["reason"] for state in states if "terminated" in state]
        return told if len(told) == len(states) else []

    return await eventually(probe, f"the pods of {name} have ended", within=60, every=0.2)


@pytest.mark.req("R91")
async def test_an_agent_that_is_always_ended_for_memory_fails_as_that_with_its_steps_kept(
    stage: Stage,
) -> None:
    once = {"backoffLimit": 1, "backoffSeconds": 1}
    await stage.apply(*OBJECTS, hungry("small", SMALL), run("small", "small", files=FILES, retry=once))
    failed = await stage.reaches("small", "Failed", Reason.OUT_OF_MEMORY)
    assert "raise the memory limit in podTemplate.resources" in condition(failed, "Succeeded")["message"]
    assert [attempt["reason"] for attempt in failed["status"]["attempts"]] == [Reason.OUT_OF_MEMORY] * 2
    assert kstatus(failed) == "Failed"
    assert await ends(stage, "small") == ["OOMKilled"] * 2
    stored = await stage.stored("small")
    assert (await stage.files(stored))["kept.txt"] == b"kept"
    assert [m.type for m in (await stage.state(stored))["messages"]] == ["human", "ai", "tool", "ai"]
    await check_the_log(stage, stored)


@pytest.mark.req("R15", "R91")
async def test_more_memory_lets_the_next_attempt_go_on_from_the_last_step(stage: Stage) -> None:
    patient = {"backoffSeconds": 10}
    await stage.apply(*OBJECTS, hungry("grows", SMALL), run("grows", "grows", files=FILES, retry=patient))
    shown = await stage.reaches("grows", "Recovering", Reason.RETRY_BACKOFF)
    assert "raise the memory limit in podTemplate.resources" in condition(shown, "Succeeded")["message"]
    assert condition(shown, "Owned")["reason"] == Reason.OUT_OF_MEMORY
    await stage.apply(hungry("grows", LARGE))
    done = await stage.succeeds("grows")
    assert done["status"]["attempt"] == 2
    assert done["status"]["attempts"][0]["reason"] == Reason.OUT_OF_MEMORY
    assert await ends(stage, "grows") == ["OOMKilled", "Completed"]
    stored = await stage.stored("grows")
    messages = (await stage.state(stored))["messages"]
    assert [m.type for m in messages] == ["human", *["ai", "tool"] * 2, "ai"]
    written = [m for m in messages if m.type == "tool" and m.name == "write_file"]
    assert len(written) == 1, "what was done before is not done again"
    await check_the_log(stage, stored)
