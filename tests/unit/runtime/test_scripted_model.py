"""The scripted model: one history, one reply."""

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage

from treadle_runtime.models.script import ScriptError, parse
from treadle_runtime.models.scripted import ScriptedChatModel, ScriptedModelError

SCRIPT = """
replies:
  - text: I look.
    tool_calls:
      - {id: one, name: look, args: {path: "{{ input }}", depth: 2, more: ["{{ input }}"]}}
    usage: {input_tokens: 7, output_tokens: 3}
  - text: "Found {{ results.one }} for {{input}}"
"""


def model(script: str = SCRIPT) -> ScriptedChatModel:
    return ScriptedChatModel(script=parse(script))


ASKED = [HumanMessage("a.md", id="h")]
LOOKED = [*ASKED, AIMessage("I look.", id="x"), ToolMessage("42", tool_call_id="one", id="t")]


async def test_the_reply_follows_from_the_history_and_nothing_else() -> None:
    asked = model()
    second = await asked.ainvoke(LOOKED)
    first = await asked.ainvoke(ASKED)
    again = await model().ainvoke(ASKED)
    assert first.text == "I look."
    assert first.tool_calls[0]["args"] == {"path": "a.md", "depth": 2, "more": ["a.md"]}
    assert second.text == "Found 42 for a.md"
    assert (first.id, first.content) == (again.id, again.content)
    assert first.id != second.id


async def test_it_streams_words_tool_calls_in_parts_and_usage_at_the_end() -> None:
    chunks = [chunk async for chunk in model().astream(ASKED)]
    assert [chunk.text for chunk in chunks if chunk.text] == ["I", " look."]
    parts = [part for chunk in chunks for part in chunk.tool_call_chunks]
    assert len(parts) == 2
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert isinstance(whole, AIMessageChunk)
    assert whole.tool_calls == (await model().ainvoke(ASKED)).tool_calls
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["total_tokens"] == 10
    assert len({chunk.id for chunk in chunks}) == 1


async def test_a_turn_can_start_the_script_again() -> None:
    script = "count: turn\nreplies: [{text: hello}, {text: more}]"
    history = [HumanMessage("1"), AIMessage("hello"), HumanMessage("2")]
    assert (await model(script).ainvoke(history)).text == "hello"


@pytest.mark.parametrize(("status", "text"), [(401, "refused"), (429, "slow"), (500, "boom")])
async def test_it_fails_on_command(status: int, text: str) -> None:
    with pytest.raises(ScriptedModelError, match=text) as caught:
        await model(f"replies: [{{fail: {{status: {status}, message: {text}}}}}]").ainvoke(ASKED)
    assert caught.value.status_code == status


async def test_it_hangs_on_command_until_it_is_cancelled() -> None:
    asked = asyncio.ensure_future(model("replies: [{hang: true}]").ainvoke(ASKED))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("replies: [", "neither YAML nor JSON"),
        ("replies: []", "replies: "),
        ("[]", "script: "),
        ("replies: [{txt: hi}]", "replies.0.txt"),
        ("replies: [{tool_calls: [{name: x}]}]", "replies.0.tool_calls.0.id"),
    ],
)
def test_a_bad_script_is_told_where_it_is_bad(script: str, says: str) -> None:
    with pytest.raises(ScriptError, match=says):
        parse(script)


@pytest.mark.parametrize(
    ("script", "messages", "says"),
    [
        ("replies: [{text: a}]", [*ASKED, AIMessage("a")], "has 1 replies and reply 2 is asked for"),
        (
            "replies: [{text: '{{ results.two }}'}]",
            LOOKED[:1] + LOOKED[2:],
            "there is input, and results.one",
        ),
        ("replies: [{text: '{{ os.environ }}'}]", ASKED, "no tool has answered yet"),
    ],
)
async def test_a_reply_that_cannot_be_made_is_an_error(script: str, messages: list[Any], says: str) -> None:
    with pytest.raises(ScriptError, match=says):
        await model(script).ainvoke(messages)
