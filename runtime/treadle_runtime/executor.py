"""Drive one compiled graph: where to continue, what to stream, how it ended."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import StateSnapshot, StreamMode

from treadle_api.records import Capability
from treadle_runtime import process
from treadle_runtime.callbacks import RunCallbacks
from treadle_runtime.graphs.loading import Graph
from treadle_runtime.outcome import Failure, describe
from treadle_runtime.publish import Broadcast
from treadle_runtime.saver import RunSaver
from treadle_runtime.serde import UnreadableValue
from treadle_store.errors import StoreError, StoreRejected

log = logging.getLogger(__name__)

_STREAM_MODES: Final[list[StreamMode]] = ["messages", "updates", "custom"]


@dataclass(frozen=True, slots=True)
class Finished:
    """The graph has no task left. `values` is the thread's state at checkpoint `checkpoint`."""

    values: Mapping[str, Any]
    checkpoint: str | None

    @property
    def last_answer(self) -> BaseMessage | None:
        messages = self.values.get("messages") or ()
        return next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)


@dataclass(frozen=True, slots=True)
class Failed:
    """The graph raised. The state is that of the last whole step."""

    failure: Failure
    values: Mapping[str, Any]
    checkpoint: str | None


@dataclass(frozen=True, slots=True)
class Drained:
    """The graph stopped at a superstep's boundary because it was asked to; it can be continued."""

    values: Mapping[str, Any]
    checkpoint: str | None


Ending = Finished | Failed | Drained


class Executor:
    """One run of `graph` under `capability`, through `saver`."""

    def __init__(
        self,
        graph: Graph,
        saver: RunSaver,
        capability: Capability,
        callbacks: RunCallbacks,
        broadcast: Broadcast,
        *,
        recursion_limit: int,
        configurable: Mapping[str, str],
    ) -> None:
        self._graph = graph.copy(update={"checkpointer": saver})
        self._capability = capability
        self._callbacks = callbacks
        self._broadcast = broadcast
        self._config: RunnableConfig = {
            "configurable": {**configurable, "thread_id": str(capability.thread_id)},
            "recursion_limit": recursion_limit,
            "callbacks": [callbacks],
        }
        self._control = RunControl()

    def drain(self, reason: str) -> None:
        """Ask the graph to stop before its next superstep."""
        if not self._control.drain_requested:
            log.info("graph drains", extra={"fields": {"reason": reason}})
            self._control.request_drain(reason)

    async def run(self, given: Mapping[str, Any]) -> Ending:
        """Begin with `given`, or continue where an earlier attempt of this run stopped.

        Raises StoreError when the run may not or cannot go on here, UnreadableValue when its checkpoint
        cannot be read. Whatever the graph itself raises is an ending.
        """
        snapshot = await self._snapshot()
        ours = (snapshot.metadata or {}).get("run_id") == self._capability.run_id
        if ours and not snapshot.tasks:
            return Finished(snapshot.values, _checkpoint(snapshot))
        told = {"resumed": ours, "checkpoint": _checkpoint(snapshot), "cpu_seconds": process.cpu_seconds()}
        log.info("graph runs", extra={"fields": told})
        try:
            await self._stream(None if ours else given)
        except GraphDrained:
            snapshot = await self._snapshot()
            return Drained(snapshot.values, _checkpoint(snapshot))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            _raise_infrastructure(error)
            log.info("graph failed", exc_info=error)
            snapshot = await self._snapshot()
            failure = describe(error, from_model=error is self._callbacks.model_error)
            return Failed(failure, snapshot.values, _checkpoint(snapshot))
        snapshot = await self._snapshot()
        if snapshot.tasks:
            return Failed(_unfinished(snapshot), snapshot.values, _checkpoint(snapshot))
        return Finished(snapshot.values, _checkpoint(snapshot))

    async def _stream(self, given: Mapping[str, Any] | None) -> None:
        stream = cast(
            AsyncGenerator[Any, None],
            self._graph.astream(
                given,
                self._config,
                stream_mode=_STREAM_MODES,
                durability="sync",
                control=self._control,
                subgraphs=True,
            ),
        )
        async with contextlib.aclosing(stream):
            async for namespace, mode, data in stream:
                self._frame(list(namespace), mode, data)

    def _frame(self, namespace: list[str], mode: str, data: Any) -> None:
        match mode:
            case "messages":
                message, metadata = data
                # Whole messages come as events once they are committed.
                if isinstance(message, AIMessageChunk) and (message.content or message.tool_call_chunks):
                    self._broadcast.delta("messages", _token(message, metadata))
            case "updates":
                self._broadcast.hold("updates", {"ns": namespace, "update": _plain(data)})
            case "custom":
                self._broadcast.delta("custom", {"ns": namespace, "data": data})

    async def _snapshot(self) -> StateSnapshot:
        return await self._graph.aget_state(self._config)


def _raise_infrastructure(error: BaseException) -> None:
    """Raise what ends this attempt and not the run: the store's errors, wherever they are wrapped."""
    cause: BaseException | None = error
    for _ in range(16):
        if cause is None:
            return
        if isinstance(cause, UnreadableValue) or (
            isinstance(cause, StoreError) and not isinstance(cause, StoreRejected)
        ):
            raise cause
        cause = cause.__cause__ or cause.__context__


def _unfinished(snapshot: StateSnapshot) -> Failure:
    if any(task.interrupts for task in snapshot.tasks):
        return Failure(
            ("InterruptUnsupported",), "the graph waits for an answer, which this version cannot wait for"
        )
    names = ", ".join(task.name for task in snapshot.tasks)
    return Failure(("GraphUnfinished",), f"the graph ended with tasks left: {names}")


def _checkpoint(snapshot: StateSnapshot) -> str | None:
    found: str | None = snapshot.config.get("configurable", {}).get("checkpoint_id")
    return found


def _token(message: AIMessageChunk, metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": message.id,
        "role": message.type,
        "content": message.content,
        "tool_call_chunks": message.tool_call_chunks,
        "node": metadata.get("langgraph_node"),
    }


def _plain(value: Any) -> Any:
    """An update with its messages as dictionaries."""
    match value:
        case BaseMessage():
            return {"id": value.id, "role": value.type, "content": value.content}
        case Mapping():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value
