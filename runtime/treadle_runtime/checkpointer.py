"""LangGraph's checkpoint saver on the fenced store: one saver per run, bound to the run's capability.

Every write carries the fencing token and goes through the run's StepSender; a saver whose token is no longer
current writes nothing, whatever it believes. Async only. The graph runs with the capability's thread as
`thread_id` in its config.
"""

import functools
import math
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any, Final, NoReturn, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
)

from treadle_api.records import Appended, Capability, Event
from treadle_runtime.checkpoint_ids import next_version, seed_checkpoint_clock
from treadle_runtime.sender import Limits, StepSender
from treadle_runtime.serde import StrictSerializer
from treadle_store import checkpoints as store
from treadle_store.checkpoints import ChannelBlob, CheckpointRow, StoredCheckpoint, StoredValue, WriteRow
from treadle_store.errors import StoreError
from treadle_store.pool import Executor

METADATA_KEYS: Final = frozenset({"source", "step", "parents", "run_id", "counters_since_delta_snapshot"})
"""All that is stored of a checkpoint's metadata. LangGraph's own savers also copy every scalar of the config
there, in clear: an API key passed through `configurable` would be in the database for good."""

_PAGE: Final = 100
_INLINE_CHARACTERS: Final = 256
_INLINE_INTEGER: Final = 2**53


def _async_only(method: str) -> Callable[..., NoReturn]:
    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"TreadleSaver is async only: run the graph with ainvoke or astream, or call {method}"
        )

    return refuse


class TreadleSaver(BaseCheckpointSaver[str]):
    """A `BaseCheckpointSaver` for one run.

    Reads wait until this run's own writes are durable, so that it always sees them. Every method raises
    StaleToken once ownership is lost, StoreUnavailable when the store stays away, UnreadableValue when a
    stored value cannot be rebuilt exactly, and ValueError for another thread than the run's.
    """

    def __init__(
        self,
        db: Executor,
        capability: Capability,
        sender: StepSender,
        *,
        extra_types: Collection[tuple[str, str]] = (),
        metadata_keys: Collection[str] = METADATA_KEYS,
    ) -> None:
        """`db` must be a pool: reads and the sender use it at the same time.

        Raises NotStrict when the process runs without strict msgpack.
        """
        super().__init__(serde=StrictSerializer(extra_types))
        # LangGraph works on shallow copies (`with_allowlist`): what must be one for all of them lives in the
        # sender, and no attribute is rebound after construction.
        self.capability = capability
        self.sender = sender
        self._db = db
        self._metadata_keys = frozenset(metadata_keys)

    @classmethod
    async def open(
        cls,
        db: Executor,
        capability: Capability,
        *,
        on_stale: Callable[[StoreError], None] | None = None,
        head_seq: int | None = None,
        extra_types: Collection[tuple[str, str]] = (),
        limits: Limits | None = None,
    ) -> "TreadleSaver":
        """A saver for a claimed run, with the checkpoint-id clock set past everything the thread holds."""
        sender = StepSender(db, capability, on_stale=on_stale, head_seq=head_seq, limits=limits)
        saver = cls(db, capability, sender, extra_types=extra_types)
        newest = await store.newest_checkpoint_id(db, capability)
        if newest is not None:
            seed_checkpoint_clock(newest)
        return saver

    async def journal(self, events: Sequence[Event]) -> Appended:
        """Append events in order with this run's checkpoints; the answer holds exactly their seqs."""
        return await self.sender.send(events=events)

    # --- writing ---

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        ns, parent = self._target(config)
        inline: dict[str, Any] = {}
        blobs: list[ChannelBlob] = []
        for channel, value in checkpoint["channel_values"].items():
            if _fits_inline(value):
                inline[channel] = value
            elif channel in new_versions:
                tag, data = self.serde.dumps_typed(value)
                blobs.append(ChannelBlob(channel, str(new_versions[channel]), tag, data))
        row = CheckpointRow(
            ns=ns,
            id=checkpoint["id"],
            parent=parent,
            checkpoint={**checkpoint, "channel_values": inline},
            metadata=self._stored_metadata(metadata),
            blobs=blobs,
        )
        await self.sender.send(checkpoint=row)
        return self._config(ns, checkpoint["id"])

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        ns, checkpoint_id = self._target(config)
        if checkpoint_id is None:
            raise ValueError("pending writes belong to a checkpoint: the config names none")
        rows = []
        for position, (channel, value) in enumerate(writes):
            tag, data = self.serde.dumps_typed(value)
            idx = WRITES_IDX_MAP.get(channel, position)
            rows.append(WriteRow(ns, checkpoint_id, task_id, task_path, idx, channel, tag, data))
        await self.sender.send(writes=rows)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of the run's own thread."""
        self._own(thread_id)
        await self.sender.call(lambda: store.delete_thread_checkpoints(self._db, self.capability))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what the given runs left on this run's thread; other threads are out of reach."""
        await self.sender.call(lambda: store.delete_for_runs(self._db, self.capability, run_ids))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`keep_latest` keeps per namespace the newest checkpoint and what its delta channels need."""
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"unknown prune strategy {strategy!r}: use 'keep_latest' or 'delete'")
        for thread_id in thread_ids:
            self._own(thread_id)
        if not thread_ids:
            return
        prune = store.delete_thread_checkpoints if strategy == "delete" else store.prune_checkpoints
        await self.sender.call(lambda: prune(self._db, self.capability))

    # --- reading ---

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        ns, checkpoint_id = self._target(config)
        stored = await self.sender.call(
            lambda: store.get_checkpoint(self._db, self.capability, ns, checkpoint_id)
        )
        return None if stored is None else self._tuple(stored)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Newest first. Without `checkpoint_ns` in the config, all namespaces of the thread."""
        wanted = config["configurable"] if config else {"thread_id": self.capability.thread_id}
        self._own(wanted["thread_id"])
        left = math.inf if limit is None else limit
        after: StoredCheckpoint | None = None
        while left > 0:
            read = functools.partial(
                store.list_checkpoints,
                self._db,
                self.capability,
                ns=wanted.get("checkpoint_ns"),
                checkpoint_id=wanted.get("checkpoint_id"),
                metadata=filter,
                before=before["configurable"]["checkpoint_id"] if before else None,
                after=after,
                limit=int(min(left, _PAGE)),
            )
            page = await self.sender.call(read)
            for stored in page:
                yield self._tuple(stored)
            if len(page) < _PAGE:
                return
            after = page[-1]
            left -= len(page)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        if not channels:
            return {}
        ns, checkpoint_id = self._target(config)
        history = await self.sender.call(
            lambda: store.get_delta_history(self._db, self.capability, ns, checkpoint_id, channels)
        )
        result: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
        for channel, value in history.inline_seeds.items():
            result[channel]["seed"] = value
        for seed in history.seeds:
            result[seed.channel]["seed"] = self._load(seed)
        for task_id, write in history.writes:
            result[write.channel]["writes"].append((task_id, write.channel, self._load(write)))
        return result

    def get_next_version(self, current: str | None, channel: None) -> str:
        return next_version(current)

    get_tuple = _async_only("aget_tuple")
    list = _async_only("alist")
    put = _async_only("aput")
    put_writes = _async_only("aput_writes")
    delete_thread = _async_only("adelete_thread")

    # --- rows <-> LangGraph ---

    def _tuple(self, stored: StoredCheckpoint) -> CheckpointTuple:
        values = dict(stored.checkpoint["channel_values"])
        values.update((blob.channel, self._load(blob)) for blob in stored.blobs if blob.type != "empty")
        writes: list[PendingWrite] = [
            (task_id, write.channel, self._load(write)) for task_id, write in stored.writes
        ]
        return CheckpointTuple(
            config=self._config(stored.ns, stored.id),
            checkpoint=cast(Checkpoint, {**stored.checkpoint, "channel_values": values}),
            metadata=cast(CheckpointMetadata, stored.metadata),
            parent_config=self._config(stored.ns, stored.parent) if stored.parent else None,
            pending_writes=writes,
        )

    def _load(self, value: StoredValue) -> Any:
        return self.serde.loads_typed((value.type, value.data))

    def _stored_metadata(self, metadata: CheckpointMetadata) -> dict[str, Any]:
        kept = {key: value for key, value in metadata.items() if key in self._metadata_keys}
        kept.setdefault("run_id", self.capability.run_id)
        return kept

    def _target(self, config: RunnableConfig) -> tuple[str, str | None]:
        """Namespace and checkpoint id that a config points at."""
        configurable = config["configurable"]
        self._own(configurable["thread_id"])
        return configurable.get("checkpoint_ns", ""), configurable.get("checkpoint_id") or None

    def _own(self, thread_id: str) -> None:
        if str(thread_id) != str(self.capability.thread_id):
            raise ValueError(
                f"this saver belongs to thread {self.capability.thread_id}, not to {thread_id}: "
                "one saver serves one run"
            )

    def _config(self, ns: str, checkpoint_id: str) -> RunnableConfig:
        return {
            "configurable": {
                "thread_id": str(self.capability.thread_id),
                "checkpoint_ns": ns,
                "checkpoint_id": checkpoint_id,
            }
        }


def _fits_inline(value: object) -> bool:
    """Whether a channel value may stand in the checkpoint's JSON instead of a blob.

    JSON in Postgres knows neither NUL, lone surrogates, NaN nor infinity, and rounds nothing up to 2^53.
    """
    if value is None or isinstance(value, bool):
        return True
    if type(value) is int:
        return abs(value) <= _INLINE_INTEGER
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is str:
        return len(value) <= _INLINE_CHARACTERS and value.isprintable()
    return False
