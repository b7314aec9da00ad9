"""Streams from Postgres alone."""

import pytest

from support.claims import NAMESPACE
from support.gateway import GatewayUnderTest, take
from support.live_runs import LiveRuns
from treadle_api.records import RunStatus


@pytest.mark.req("R1")
async def test_a_finished_run_is_replayed_whole_and_ends_with_its_outcome(
    wireless: LiveRuns, polling_gateway: GatewayUnderTest
) -> None:
    run = await wireless.start()
    for word in ("one", "two", "three"):
        await run.say(word)
    await run.settle()
    frames = await polling_gateway.whole(NAMESPACE, run.name)
    assert [frame.event for frame in frames] == [
        "metadata",
        "message",
        "message",
        "message",
        "run.end",
        "run.delivery",
        "end",
    ]
    assert [frame.data["text"] for frame in frames[1:4]] == ["one", "two", "three"]
    assert [frame.id for frame in frames[1:4]] == [run.cursor(1), run.cursor(2), run.cursor(3)]
    assert frames[0].data["run_id"] == run.view.run_id
    assert frames[-1].data["outcome"] == "success"
    assert len(frames[-1].data["receipt"]) == 64


@pytest.mark.req("R1")
@pytest.mark.req("R47")
async def test_a_living_run_is_followed_by_polling(
    wireless: LiveRuns, polling_gateway: GatewayUnderTest
) -> None:
    run = await wireless.start()
    await run.say("before")
    async with polling_gateway.stream(NAMESPACE, run.name) as frames:
        first = await take(frames, 3)
        assert [frame.event for frame in first] == ["metadata", "gap", "message"]
        assert first[1].data["reason"] == "wire_unavailable"
        await run.say("after")
        assert (await take(frames, 1))[0].data == {"text": "after"}
        await run.settle(RunStatus.ERROR)
        ending = await take(frames, 3)
        assert [frame.event for frame in ending] == ["run.end", "run.delivery", "end"]
        assert ending[-1].data["outcome"] == "error"


@pytest.mark.req("R42")
async def test_a_cursor_continues_behind_the_event_it_names(
    wireless: LiveRuns, polling_gateway: GatewayUnderTest
) -> None:
    run = await wireless.start()
    for number in range(1, 121):
        await run.say(str(number))
    await run.settle()
    frames = await polling_gateway.whole(NAMESPACE, run.name, after=run.cursor(60))
    assert [frame.event for frame in frames[:2]] == ["metadata", "gap"]
    assert [int(frame.data["text"]) for frame in frames if frame.event == "message"] == list(range(61, 121))


async def test_only_the_named_run_of_a_thread_is_told(
    wireless: LiveRuns, polling_gateway: GatewayUnderTest
) -> None:
    first = await wireless.start()
    await first.say("of the first")
    await first.settle()
    second = await wireless.start(first.capability.thread_id)
    await second.say("of the second")
    await second.settle()
    for run, text in ((first, "of the first"), (second, "of the second")):
        frames = await polling_gateway.whole(NAMESPACE, run.name)
        assert [frame.data["text"] for frame in frames if frame.event == "message"] == [text]
        assert frames[-1].data["run_id"] == run.view.run_id


@pytest.mark.req("R46")
async def test_an_agent_cannot_speak_for_the_gateway(
    wireless: LiveRuns, polling_gateway: GatewayUnderTest
) -> None:
    run = await wireless.start()
    for type in ("end", "metadata", "reset", "gap", "error"):
        await run.say("success", type=type)
    await run.settle(RunStatus.ERROR)
    frames = await polling_gateway.whole(NAMESPACE, run.name)
    assert [frame.event for frame in frames] == [
        *("metadata", "agent.end", "agent.metadata", "agent.reset", "agent.gap", "agent.error"),
        *("run.end", "run.delivery", "end"),
    ]
    assert frames[-1].data["outcome"] == "error"
