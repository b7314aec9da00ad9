"""The path to a real provider, against a local server that speaks its protocol."""

import json
from collections.abc import AsyncIterator

import pytest
from langchain_core.messages import AIMessageChunk

from support.agent_process import Harness
from support.openai_server import OpenAIServer
from support.scripts import configuration
from treadle_api.contract import ENV_MODEL_API_KEY, ENV_RETRIES_LEFT, ExitCode
from treadle_api.reasons import Reason
from treadle_api.resolved import ResolvedModel
from treadle_runtime.models.build import ModelConfigurationError, build_model
from treadle_runtime.outcome import describe, of_failure


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer.running() as made:
        yield made


def resolved(server: OpenAIServer, **parameters: object) -> ResolvedModel:
    return ResolvedModel(
        provider="openai", name="tiny", base_url=server.url, parameters={"max_retries": 0, **parameters}
    )


async def test_words_tool_calls_and_usage_are_streamed(server: OpenAIServer) -> None:
    model = build_model(resolved(server, temperature=0.5), "key-of-the-test")
    chunks = [chunk async for chunk in model.astream("hi")]
    assert [chunk.text for chunk in chunks if chunk.text] == ["hello", " from", " the", " server"]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert isinstance(whole, AIMessageChunk)
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["input_tokens"] == 11
    assert server.requests[0]["temperature"] == 0.5
    assert server.keys == ["Bearer key-of-the-test"]


@pytest.mark.parametrize(
    ("status", "reason", "says"),
    [
        (401, Reason.MODEL_REJECTED, "credentials"),
        (404, Reason.MODEL_REJECTED, "model.baseURL"),
        (429, Reason.MODEL_UNAVAILABLE, "quota"),
        (500, Reason.MODEL_UNAVAILABLE, "HTTP 500"),
    ],
)
async def test_a_refusal_becomes_a_reason(
    server: OpenAIServer, status: int, reason: Reason, says: str
) -> None:
    server.refuse = status
    with pytest.raises(Exception, match="refused with") as caught:
        await build_model(resolved(server), "key").ainvoke("hi")
    verdict = of_failure(describe(caught.value, from_model=True))
    assert verdict.reason == reason
    assert says in verdict.message


async def test_a_provider_that_never_answers_is_a_timeout(server: OpenAIServer) -> None:
    server.silent = True
    with pytest.raises(Exception, match="timed out") as caught:
        await build_model(resolved(server, timeout=0.2), "key").ainvoke("hi")
    verdict = of_failure(describe(caught.value, from_model=True))
    assert (verdict.reason, "in time" in verdict.message) == (Reason.MODEL_UNAVAILABLE, True)


async def test_a_provider_that_cannot_be_reached_is_told() -> None:
    model = ResolvedModel(
        provider="openai", name="tiny", base_url="http://127.0.0.1:1/v1", parameters={"max_retries": 0}
    )
    with pytest.raises(Exception, match="Connection") as caught:
        await build_model(model, "key").ainvoke("hi")
    verdict = of_failure(describe(caught.value, from_model=True))
    assert "could not be reached" in verdict.message


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (ResolvedModel(provider="scripted", script=None), "scriptConfigMapKeyRef"),
        (ResolvedModel(provider="openai", name="x", parameters={"api_key": "y"}), "may not set api_key"),
        (ResolvedModel(provider="mistralai", name="x"), "needs a package"),
        (ResolvedModel(provider="openai", name="x"), "apiKeySecretKeyRef"),
    ],
)
def test_a_model_that_cannot_be_built_says_which_field_to_change(
    model: ResolvedModel, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelConfigurationError, match=says):
        build_model(model, None)


@pytest.mark.timeout(120)
async def test_a_run_through_a_provider_ends_like_any_other_and_keeps_the_key_to_itself(
    harness: Harness, server: OpenAIServer
) -> None:
    model = {"provider": "openai", "name": "tiny", "base_url": server.url, "script": None}
    run = await harness.admit(configuration([{"text": "unused"}], model=model))
    pod = await harness.attempt(run, environment={ENV_MODEL_API_KEY: "key-of-the-test"})
    assert await pod.ended() == ExitCode.ANSWERED, pod.log
    receipt = (await harness.settled(run)).payload
    assert receipt["summary"] == "hello from the server"
    assert receipt["usage"]["input_tokens"] == 11
    assert receipt["model"] == "tiny-1"
    words = [
        frame.data["content"]
        for frame in await harness.frames(run)
        if frame.type == "messages" and frame.data
    ]
    assert "".join(words) == "hello from the server"
    tools = {tool["function"]["name"] for tool in server.requests[0]["tools"]}
    assert {"write_file", "present_files"} <= tools
    dump = json.dumps([event.payload for event in await harness.log(run)]) + str(await harness.state(run))
    assert "key-of-the-test" not in dump + pod.log


@pytest.mark.timeout(120)
@pytest.mark.req("R91")
async def test_a_provider_that_is_away_ends_the_attempt_and_the_last_attempt_ends_the_run(
    harness: Harness, server: OpenAIServer
) -> None:
    server.refuse = 503
    model = {"provider": "openai", "name": "tiny", "base_url": server.url, "parameters": {"max_retries": 0}}
    run = await harness.admit(configuration([{"text": "unused"}], model={**model, "script": None}))

    def another(retries_left: int) -> dict[str, str]:
        return {ENV_MODEL_API_KEY: "key-of-the-test", ENV_RETRIES_LEFT: str(retries_left)}

    first = await harness.attempt(run, environment=another(1))
    assert await first.ended() == ExitCode.TRY_AGAIN, first.log
    assert first.termination["reason"] == Reason.MODEL_UNAVAILABLE
    assert "HTTP 503" in first.termination["message"]
    assert await harness.receipt(run) is None
    kinds = [event.type for event in await harness.log(run)]
    assert kinds.count("model.request") == 1, "what happened before it ended is in the log"

    last = await harness.attempt(run, environment=another(0))
    assert await last.ended() == ExitCode.ANSWERED, last.log
    receipt = (await harness.settled(run)).payload
    assert (receipt["outcome"], receipt["reason"]) == ("error", Reason.MODEL_UNAVAILABLE)
    assert receipt["journal_complete"] is True
