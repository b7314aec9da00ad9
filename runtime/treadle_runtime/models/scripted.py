"""A chat model that says what its script says: the same history always gets the same reply.

The reply is picked by the number of AI messages in the history, never by an iterator: a resumed, forked or
repeated call answers as the first one did.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.base import LangSmithParams
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    message_chunk_to_message,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable

from treadle_runtime.models.script import Reply, Script, ScriptError, fill


class ScriptedModelError(Exception):
    """What a provider's error looks like, on command."""

    def __init__(self, status_code: int, message: str) -> None:
        super().__init__(message)
        self.status_code = status_code


class ScriptedChatModel(BaseChatModel):
    script: Script

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": "scripted"}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        """The name under which callbacks know the model."""
        return LangSmithParams(ls_provider="scripted", ls_model_name="scripted", ls_model_type="chat")

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        """The script names its tools itself; a call of one that does not exist is the graph's to answer."""
        return self

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        reply = self._reply(messages)
        await _wait(reply)
        for chunk in self._chunks(reply, messages):
            generation = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                await run_manager.on_llm_new_token(str(chunk.content), chunk=generation)
            yield generation
            await asyncio.sleep(reply.word_delay_seconds)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = self._reply(messages)
        await _wait(reply)
        return self._whole(reply, messages)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = self._reply(messages)
        if reply.hang or reply.sleep_seconds:
            raise ScriptError(
                "a reply that sleeps or hangs needs the asynchronous call: use ainvoke or astream"
            )
        return self._whole(reply, messages)

    def _reply(self, messages: list[BaseMessage]) -> Reply:
        counted = messages
        if self.script.count == "turn":
            last = max((place for place, m in enumerate(messages) if isinstance(m, HumanMessage)), default=0)
            counted = messages[last:]
        reply = self.script.reply(sum(isinstance(message, AIMessage) for message in counted))
        if reply.fail is not None:
            raise ScriptedModelError(reply.fail.status, reply.fail.message)
        return reply

    def _whole(self, reply: Reply, messages: list[BaseMessage]) -> ChatResult:
        chunks = list(self._chunks(reply, messages))
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        return ChatResult(generations=[ChatGeneration(message=message_chunk_to_message(whole))])

    def _chunks(self, reply: Reply, messages: list[BaseMessage]) -> Iterator[AIMessageChunk]:
        results = {m.tool_call_id: m.text for m in messages if isinstance(m, ToolMessage)}
        question = next((m.text for m in reversed(messages) if isinstance(m, HumanMessage)), "")
        text = fill(reply.text, results=results, question=question)
        calls = [
            (call, json.dumps(fill(call.args, results=results, question=question)))
            for call in reply.tool_calls
        ]
        identity = _identity(messages)
        for place, word in enumerate(text.split(" ")) if text else ():
            yield AIMessageChunk(content=word if place == 0 else f" {word}", id=identity)
        for index, (call, arguments) in enumerate(calls):
            half = len(arguments) // 2
            for part, name, call_id in (
                (arguments[:half], call.name, call.id),
                (arguments[half:], None, None),
            ):
                chunk = {"name": name, "args": part, "id": call_id, "index": index, "type": "tool_call_chunk"}
                yield AIMessageChunk(content="", tool_call_chunks=[chunk], id=identity)
        usage = reply.usage
        count_in = usage.input_tokens if usage else sum(len(m.text.split()) for m in messages)
        count_out = (
            usage.output_tokens if usage else len(text.split()) + sum(len(args) // 4 for _, args in calls)
        )
        yield AIMessageChunk(
            content="",
            id=identity,
            usage_metadata={
                "input_tokens": count_in,
                "output_tokens": count_out,
                "total_tokens": count_in + count_out,
            },
            response_metadata={"model_name": "scripted", "finish_reason": "tool_calls" if calls else "stop"},
            chunk_position="last",
        )


async def _wait(reply: Reply) -> None:
    if reply.hang:
        await asyncio.Event().wait()
    await asyncio.sleep(reply.sleep_seconds)


def _identity(messages: list[BaseMessage]) -> str:
    """A message id that a repeated call gives again, so that a repeated reply replaces and never doubles."""
    seen = "\0".join(str(message.id) for message in messages)
    return f"scripted-{hashlib.sha256(seen.encode()).hexdigest()[:24]}"
