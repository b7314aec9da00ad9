"""A provider in trouble, over HTTP, under real agent pods: retried by its client, then by the next attempts,
then told by name; no step is lost.

Each model first asks for a tool, so that there are steps to lose, and is in trouble after that.
"""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from support.cluster import Cluster
from support.e2e import Stage, condition, open_stage
from support.e2e_bad_input import Object, agent, run, secret, thread
from support.kstatus import kstatus
from support.model_pod import start_model
from support.release import Release, free_namespace
from support.runs import check_the_log
from treadle_api.reasons import Reason

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(420)]

RIGHT_KEY = "the-right-key"
RETRIES = 3
"""Of the provider's client, as our runtime sets it: so many refusals cost time only."""
TIMEOUT = "5"
"""Seconds; longer than an answer takes while ten agents start on two cores."""
TROUBLES: dict[str, tuple[Object, str]] = {
    "429": ({"refuse": 429}, "try later or raise the quota"),
    "500": ({"refuse": 500}, "(HTTP 500); try again later"),
    "timeout": ({"silent": True}, "did not answer in time; try again later, or raise timeout"),
}
_SAVE = {"path": "notes.md", "content": "kept words"}
_CALL = {
    "id": "save",
    "type": "function",
    "function": {"name": "write_file", "arguments": json.dumps(_SAVE)},
}


def scenes() -> dict[str, Mapping[str, Any]]:
    """By the model's name: a trouble that passes within the client's retries, and one that outlasts them,
    for Runs with and without a retry of their own."""
    made: dict[str, Mapping[str, Any]] = {}
    for name, (trouble, _) in TROUBLES.items():
        for kind, times in (("passes", RETRIES - 1), ("outlasts", RETRIES + 1), ("lasts", RETRIES + 1)):
            made[f"{kind}-{name}"] = {"answers": [{"tool_call": _CALL}, *[trouble] * times, {"text": "done"}]}
    made["locked"] = {"answers": [{"text": "open"}], "key": RIGHT_KEY}
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage(cluster: Cluster, treadle_release: Release) -> AsyncIterator[Stage]:
    """An Agent and a Thread of the same name for each model; the first Run of each is applied."""
    async with free_namespace(cluster) as namespace, open_stage(cluster, treadle_release, namespace) as stage:
        url = await start_model(stage, scenes())
        await stage.apply(secret("key", key="a-wrong-key"))
        for name in scenes():
            model = {"provider": "openai", "name": name, "baseURL": url, "parameters": {"timeout": TIMEOUT}}
            model["apiKeySecretKeyRef"] = {"name": "key", "key": "key"}
            retry = {"backoffLimit": 0} if name.startswith("lasts") else {"backoffSeconds": 1}
            await stage.apply(agent(name, model=model), thread(name, name), run(name, None, retry=retry))
        yield stage


def said(shown: dict[str, Any]) -> str:
    return str(condition(shown, "Succeeded")["message"])


async def spoken(stage: Stage, name: str) -> list[str]:
    return [message.type for message in (await stage.state(await stage.stored(name)))["messages"]]


@pytest.mark.req("R91")
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_trouble_that_passes_costs_time_only(stage: Stage, trouble: str) -> None:
    name = f"passes-{trouble}"
    done = await stage.succeeds(name)
    assert done["status"]["attempt"] == 1
    assert done["status"]["usage"]["modelCalls"] == 2
    stored = await stage.stored(name)
    assert await spoken(stage, name) == ["human", "ai", "tool", "ai"]
    assert await stage.files(stored) == {"notes.md": b"kept words"}
    await check_the_log(stage, stored)


@pytest.mark.req("R91")
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_trouble_that_outlasts_the_clients_retries_is_left_to_the_next_attempt(
    stage: Stage, trouble: str
) -> None:
    name = f"outlasts-{trouble}"
    done = await stage.succeeds(name)
    lost, answered = done["status"]["attempts"]
    assert (lost["loss"], lost["reason"]) == ("Retry", Reason.MODEL_UNAVAILABLE)
    assert "loss" not in answered
    assert await spoken(stage, name) == ["human", "ai", "tool", "ai"]
    stored = await stage.stored(name)
    assert await stage.files(stored) == {"notes.md": b"kept words"}
    steps = await stage.steps(stored)
    assert steps == list(range(-1, len(steps) - 1))
    await check_the_log(stage, stored)


@pytest.mark.req("R15", "R84", "R91")
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_trouble_that_lasts_is_named_and_the_next_run_goes_on_from_every_step(
    stage: Stage, trouble: str
) -> None:
    name = f"lasts-{trouble}"
    failed = await stage.reaches(name, "Failed", Reason.MODEL_UNAVAILABLE)
    assert TROUBLES[trouble][1] in said(failed)
    assert kstatus(failed) == "Failed"
    assert failed["status"]["delivery"]["produced"] == 1
    stored = await stage.stored(name)
    assert await spoken(stage, name) == ["human", "ai", "tool"]
    assert await stage.files(stored) == {"notes.md": b"kept words"}
    await check_the_log(stage, stored)

    again = f"again-{trouble}"
    await stage.apply(run(again, None, threadRef={"name": name}, input={"text": "and now?"}))
    done = await stage.succeeds(again)
    assert done["status"]["result"]["summary"] == "done"
    assert await spoken(stage, again) == ["human", "ai", "tool", "human", "ai"]
    steps = await stage.steps(stored)
    assert steps == list(range(-1, len(steps) - 1))
    assert await stage.files(stored) == {"notes.md": b"kept words"}


@pytest.mark.req("R91")
async def test_a_refused_key_is_not_tried_again_and_says_what_to_change(stage: Stage) -> None:
    failed = await stage.reaches("locked", "Failed", Reason.MODEL_REJECTED)
    assert "check the model's API key" in said(failed)
    assert "a-wrong-key" not in json.dumps(failed)
    assert failed["status"]["attempt"] == 1
    await stage.apply(secret("key", key=RIGHT_KEY))
    await stage.apply(run("unlocked", None, threadRef={"name": "locked"}))
    done = await stage.succeeds("unlocked")
    assert done["status"]["result"]["summary"] == "open"
    assert await spoken(stage, "unlocked") == ["human", "human", "ai"]
