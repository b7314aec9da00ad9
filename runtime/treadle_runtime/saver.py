"""The run's saver: what LangGraph hands over becomes rows, and the events that these rows are."""

from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata

from treadle_api.records import Capability, Event
from treadle_runtime.checkpoint_ids import seed_checkpoint_clock
from treadle_runtime.checkpointer import TreadleSaver
from treadle_runtime.events import make_event, told_by_writes
from treadle_runtime.writer import RunWriter, StepNotes
from treadle_store import checkpoints as store
from treadle_store.pool import Executor


class RunSaver(TreadleSaver):
    """A TreadleSaver whose writes tell their events in the same statement.

    A `message` event stands in the log exactly when the message's write stands in the store: an attempt
    that is cut off between the two cannot exist, so a repeated task never tells its messages twice. The
    run's input is told with the input checkpoint for the same reason.
    """

    def __init__(self, db: Executor, capability: Capability, writer: RunWriter, input_event: Event) -> None:
        super().__init__(db, capability, writer)
        self._writer = writer
        self._input_event = input_event

    async def prepare(self) -> None:
        """Set the clock of checkpoint ids past everything that the thread holds."""
        newest = await self._writer.call(lambda: store.newest_checkpoint_id(self._db, self.capability))
        if newest is not None:
            seed_checkpoint_clock(newest)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        namespace = config["configurable"].get("checkpoint_ns", "")
        source = metadata.get("source")
        told = [
            make_event(
                "checkpoint",
                {"id": checkpoint["id"], "ns": namespace, "step": metadata.get("step"), "source": source},
            )
        ]
        if source == "input" and not namespace:
            told = [self._input_event, *told]
        with self._writer.noting(StepNotes(told, closes=not namespace)):
            return await super().aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        with self._writer.noting(StepNotes(told_by_writes(writes, task_id), task=task_id)):
            await super().aput_writes(config, writes, task_id, task_path)
