"""What people get wrong: a named reason, a sentence with the next step, and on by itself once it is mended.

All Runs are applied at once, and what is missing comes at once; each test looks after one of them.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from support.cluster import Cluster
from support.e2e import Stage, condition, open_stage
from support.e2e_bad_input import ENDING, HELLO, WAITING, Fails, Waits, agent, run, script, secret, thread
from support.kstatus import kstatus
from support.release import Release, free_namespace
from treadle_api.reasons import Reason

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(420)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage(cluster: Cluster, treadle_release: Release) -> AsyncIterator[Stage]:
    """Everything is applied."""
    named = {
        (each["kind"], each["metadata"]["name"]): each
        for case in (*WAITING, *ENDING)
        for each in case.objects
    }
    async with free_namespace(cluster) as namespace, open_stage(cluster, treadle_release, namespace) as stage:
        await stage.apply_large(HELLO, *named.values())
        yield stage


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def waiting(stage: Stage, treadle_release: Release) -> dict[str, dict[str, Any] | BaseException]:
    """The Runs as they waited, by name; all are mended together, since the kubelet takes its time."""
    dsn = (await treadle_release.secret("store-access"))["agent-dsn"]
    looks = [stage.reaches(case.name, case.phase, case.reason) for case in WAITING]
    seen = await asyncio.gather(*looks, return_exceptions=True)
    await stage.apply(*(mended for case in WAITING for mended in case.cure(dsn)))
    return {case.name: shown for case, shown in zip(WAITING, seen, strict=True)}


def said(shown: dict[str, Any]) -> str:
    return str(condition(shown, "Succeeded")["message"])


@pytest.mark.req("R91")
@pytest.mark.parametrize("case", WAITING, ids=lambda case: case.name)
async def test_what_is_missing_is_named_and_waited_for(
    stage: Stage, waiting: dict[str, dict[str, Any] | BaseException], case: Waits
) -> None:
    shown = waiting[case.name]
    if isinstance(shown, BaseException):
        raise shown
    assert case.says in said(shown)
    assert condition(shown, "Succeeded")["status"] == "Unknown"
    assert kstatus(shown) == "InProgress"
    done = await stage.succeeds(case.name)
    assert done["status"]["delivery"]["receiptID"]


@pytest.mark.req("R91")
@pytest.mark.parametrize("case", ENDING, ids=lambda case: case.name)
async def test_what_cannot_work_ends_with_its_reason_and_the_next_step(stage: Stage, case: Fails) -> None:
    shown = await stage.reaches(case.name, "Failed", case.reason)
    assert case.says in said(shown)
    assert kstatus(shown) == "Failed"
    assert condition(shown, "Finished")["status"] == "True"
    assert bool(shown["status"].get("delivery", {}).get("receiptID")) is case.receipt
    assert Reason(case.reason).next_action
    assert len(await stage.pods(case.name)) <= 1, "nothing is tried again that cannot get better"


@pytest.mark.req("R47")
@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", None], ids=["Redis away", "no Secret"])
async def test_without_the_live_wire_a_run_ends_well(stage: Stage, url: str | None) -> None:
    name = "no-wire" if url else "no-wire-secret"
    wire = (secret(name, url=url),) if url else ()
    await stage.apply(*wire, agent(name, streamSecretRef={"name": name}), run(name, name))
    assert (await stage.succeeds(name))["status"]["attempt"] == 1


@pytest.mark.req("R15", "R84")
async def test_what_a_failed_run_did_is_there_for_the_next_one(stage: Stage) -> None:
    kept = {"name": "write_file", "id": "keep", "args": {"path": "kept.txt", "content": "kept words"}}
    look = {"name": "read_file", "id": "look", "args": {"path": "kept.txt"}}
    failing = script("turns", {"tool_calls": [kept]}, {"fail": {"status": 429}})
    await stage.apply(failing, agent("keeper", "turns"), thread("kept", "keeper"))
    await stage.apply(run("first", None, threadRef={"name": "kept"}, retry={"backoffLimit": 0}))
    failed = await stage.reaches("first", "Failed", Reason.MODEL_UNAVAILABLE)
    assert failed["status"]["delivery"]["produced"] == 1
    await stage.apply(script("turns", {"tool_calls": [look]}, {"text": "It says: {{ results.look }}"}))
    await stage.apply(run("second", None, threadRef={"name": "kept"}, input={"text": "and now?"}))
    done = await stage.succeeds("second")
    assert "kept words" in done["status"]["result"]["summary"]
    spoken = [m.content for m in (await stage.state(await stage.stored("second")))["messages"]]
    assert [spoken[0], spoken[-2].strip(), spoken[-1]] == ["hello", "kept words", "It says: kept words"]
