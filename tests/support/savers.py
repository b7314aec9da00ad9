"""A saver for many threads, for suites that know threads only by name; a run's own saver knows one."""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)

from support.claims import Claimer
from treadle_runtime.checkpointer import METADATA_KEYS, TreadleSaver
from treadle_runtime.sender import StepSender
from treadle_store import checkpoints as store
from treadle_store.pool import Executor


class ManyThreadsSaver(BaseCheckpointSaver[str]):
    """Gives every thread id a thread, a claimed run and a TreadleSaver of its own, and delegates to it."""

    def __init__(self, claimer: Claimer, db: Executor, *, metadata_keys: Collection[str] = ()) -> None:
        super().__init__()
        self._claimer = claimer
        self._db = db
        self._metadata_keys = METADATA_KEYS | set(metadata_keys)
        self._savers: dict[str, TreadleSaver] = {}

    async def saver(self, thread_id: str) -> TreadleSaver:
        if thread_id not in self._savers:
            capability = await self._claimer.new_run()
            self._savers[thread_id] = TreadleSaver(
                self._db,
                capability,
                StepSender(self._db, capability),
                metadata_keys=self._metadata_keys,
            )
        return self._savers[thread_id]

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        name, saver, inner = await self._enter(config)
        found = await saver.aget_tuple(inner)
        return None if found is None else _named(name, found)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        assert config is not None, "a thread must be named"
        name, saver, inner = await self._enter(config)
        async for found in saver.alist(inner, filter=filter, before=before, limit=limit):
            yield _named(name, found)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        name, saver, inner = await self._enter(config)
        return _config(name, await saver.aput(inner, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        _, saver, inner = await self._enter(config)
        await saver.aput_writes(inner, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        saver = await self.saver(thread_id)
        await saver.adelete_thread(saver.capability.thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        for saver in self._savers.values():
            await saver.adelete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        source, target = await self.saver(source_thread_id), await self.saver(target_thread_id)
        await store.copy_checkpoints(self._db, target.capability, source.capability)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for thread_id in thread_ids:
            saver = await self.saver(thread_id)
            await saver.aprune([saver.capability.thread_id], strategy=strategy)

    async def _enter(self, config: RunnableConfig) -> tuple[str, TreadleSaver, RunnableConfig]:
        name = config["configurable"]["thread_id"]
        saver = await self.saver(name)
        return name, saver, _config(saver.capability.thread_id, config)


def _config(thread_id: str, config: RunnableConfig) -> RunnableConfig:
    return {**config, "configurable": {**config["configurable"], "thread_id": thread_id}}


def _named(name: str, found: CheckpointTuple) -> CheckpointTuple:
    return found._replace(
        config=_config(name, found.config),
        parent_config=_config(name, found.parent_config) if found.parent_config else None,
    )
