"""Barrier and journal at every model and tool call, whatever graph makes it.

Middlewares would reach our own graph only; LangChain's callbacks reach every call made through LangChain.
`raise_error` lets a failed barrier stop the call instead of being logged.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.types import Command

from treadle_api.records import Event, Json
from treadle_runtime.events import arguments, make_event
from treadle_runtime.failpoints import Failpoints

_FOREIGN_LOOP_SECONDS: Final = 120.0


class RunCallbacks(AsyncCallbackHandler):
    """Counts usage, tells model and tool events, holds the barrier before each call."""

    raise_error = True
    run_inline = True

    def __init__(
        self,
        barrier: Callable[[], Awaitable[object]],
        record: Callable[[Event], Awaitable[None]],
        failpoints: Failpoints,
    ) -> None:
        self.input_tokens = 0
        self.output_tokens = 0
        self.model_calls = 0
        self.tool_calls = 0
        self.model_name: str | None = None
        self.model_error: BaseException | None = None
        self._barrier = barrier
        self._record = record
        self._failpoints = failpoints
        self._loop = asyncio.get_running_loop()
        self._started: dict[UUID, tuple[str, float]] = {}

    def usage(self) -> Json:
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "model_calls": self.model_calls,
            "tool_calls": self.tool_calls,
        }

    async def on_chat_model_start(
        self,
        serialized: dict[str, Any] | None,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        await self._on_our_loop(
            self._before_model(run_id, sum(len(batch) for batch in messages), metadata or {})
        )

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        await self._on_our_loop(self._after_model(run_id, response))

    async def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self.model_error = error
        self._started.pop(run_id, None)

    async def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        inputs: dict[str, Any] | None = None,
        tool_call_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        name = str((serialized or {}).get("name", "tool"))
        shown = arguments(inputs if inputs is not None else {"input": input_str})
        await self._on_our_loop(self._before_tool(run_id, name, tool_call_id, shown))

    async def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        message = _tool_message(output)
        failed = message is not None and message.status == "error"
        await self._on_our_loop(
            self._after_tool(
                run_id, "tool.error" if failed else "tool.result", message.text if message else None
            )
        )

    async def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if isinstance(error, Exception):
            await self._on_our_loop(
                self._after_tool(run_id, "tool.error", f"{type(error).__name__}: {error}")
            )

    async def _before_model(self, run_id: UUID, count: int, metadata: dict[str, Any]) -> None:
        await self._barrier()
        self._failpoints.reach("before_model")
        self.model_calls += 1
        name = str(metadata.get("ls_model_name") or "unknown")
        self._started[run_id] = (name, time.monotonic())
        await self._record(
            make_event(
                "model.request",
                {
                    "call": str(run_id),
                    "model": name,
                    "messages": count,
                    "node": metadata.get("langgraph_node"),
                },
            )
        )

    async def _after_model(self, run_id: UUID, response: LLMResult) -> None:
        name, started = self._started.pop(run_id, ("unknown", time.monotonic()))
        message = _answer(response)
        usage: Mapping[str, Any] = (message.usage_metadata if message else None) or {}
        self.input_tokens += int(usage.get("input_tokens", 0))
        self.output_tokens += int(usage.get("output_tokens", 0))
        self.model_name = str((message.response_metadata if message else {}).get("model_name") or name)
        await self._record(
            make_event(
                "model.response",
                {
                    "call": str(run_id),
                    "model": self.model_name,
                    "message": message.id if message else None,
                    "tool_calls": len(message.tool_calls) if message else 0,
                    "usage": {
                        "input_tokens": usage.get("input_tokens", 0),
                        "output_tokens": usage.get("output_tokens", 0),
                    },
                    "milliseconds": _milliseconds(started),
                },
            )
        )
        self._failpoints.reach("after_model")

    async def _before_tool(self, run_id: UUID, name: str, call_id: str | None, shown: Any) -> None:
        await self._record(
            make_event("tool.intent", {"call": str(run_id), "id": call_id, "tool": name, "args": shown})
        )
        # The intent is durable before the effect begins.
        await self._barrier()
        self._failpoints.reach("before_tool")
        self.tool_calls += 1
        self._started[run_id] = (name, time.monotonic())

    async def _after_tool(self, run_id: UUID, kind: str, text: str | None) -> None:
        name, started = self._started.pop(run_id, ("tool", time.monotonic()))
        payload = {"call": str(run_id), "tool": name, "milliseconds": _milliseconds(started)}
        if text is not None:
            payload["text"] = arguments(text)
        await self._record(make_event(kind, payload))
        self._failpoints.reach("after_tool")

    async def _on_our_loop(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` on the agent's loop; a synchronous node calls models from a thread with its own loop."""
        if asyncio.get_running_loop() is self._loop:
            await work
            return
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        async with asyncio.timeout(_FOREIGN_LOOP_SECONDS):
            await asyncio.wrap_future(future)


def _tool_message(output: Any) -> ToolMessage | None:
    """The answer to the model, also where it travels in a Command with updates of the state."""
    if isinstance(output, Command) and isinstance(output.update, Mapping):
        output = next(iter(output.update.get("messages") or ()), None)
    return output if isinstance(output, ToolMessage) else None


def _answer(response: LLMResult) -> AIMessage | None:
    for generations in response.generations:
        for generation in generations:
            if isinstance(generation, ChatGeneration) and isinstance(generation.message, AIMessage):
                return generation.message
    return None


def _milliseconds(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
