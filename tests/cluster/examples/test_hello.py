"""01-hello: the second turn of a conversation."""

import pytest

from support.e2e import Stage, example, of_kind


@pytest.mark.req("R15", "R79")
async def test_a_second_run_of_the_thread_sees_the_messages_of_the_first(stage: Stage) -> None:
    await stage.apply(*example("01-hello"))
    first = (await stage.succeeds("hello"))["status"]
    again = of_kind(example("01-hello"), "Run")
    again["metadata"]["name"] = "hello-again"
    again["spec"]["input"]["text"] = "Do you remember me?"
    await stage.apply(again)
    second = (await stage.succeeds("hello-again"))["status"]
    assert first["pod"]["uid"] != second["pod"]["uid"]

    spoken = (await stage.state(await stage.stored("hello-again")))["messages"]
    assert [m.type for m in spoken] == ["human", "ai", "human", "ai"]
    assert spoken[0].content == "Good morning, is anybody there?"
    assert spoken[1].content == first["result"]["summary"]
    assert spoken[2].content == "Do you remember me?"
    # The scripted model counts the words that it was sent: all of the first turn were among them.
    added = len(spoken[1].content.split()) + len(spoken[2].content.split())
    assert second["usage"]["inputTokens"] == first["usage"]["inputTokens"] + added
