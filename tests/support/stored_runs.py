"""What the store says of a run and its thread, read past the fence with the operator's rights."""

from dataclasses import dataclass
from typing import Any, Protocol

from support.eventually import eventually
from treadle_api.records import Receipt, RunUID, StoredEvent, ThreadID
from treadle_runtime.serde import StrictSerializer
from treadle_store import events, receipts
from treadle_store.pool import Pool


class StoredRun(Protocol):
    """Which run."""

    @property
    def name(self) -> str: ...
    @property
    def run_id(self) -> RunUID: ...
    @property
    def thread_id(self) -> ThreadID: ...


@dataclass
class StoredRuns:
    """A store, as the role that may read all tables."""

    operator: Pool

    async def receipt(self, run: StoredRun) -> Receipt | None:
        return await receipts.read_receipt(self.operator, run.run_id)

    async def settled(self, run: StoredRun, within: float = 60) -> Receipt:
        async def probe() -> Receipt | None:
            return await self.receipt(run)

        found = await eventually(probe, f"receipt of {run.name}", within=within)
        assert found is not None
        return found

    async def log(self, run: StoredRun) -> list[StoredEvent]:
        return await events.list_events(self.operator, run.thread_id, limit=1000)

    async def log_has(self, run: StoredRun, kind: str, count: int = 1, within: float = 30) -> None:
        """Wait until the log holds `count` events of that type."""

        async def probe() -> bool:
            return sum(event.type == kind for event in await self.log(run)) >= count

        await eventually(probe, f"{count} x {kind} in the log", within=within)

    async def state(self, run: StoredRun) -> dict[str, Any]:
        """The thread's channels as its newest checkpoint has them, read past the fence."""
        row = await self.operator.fetchrow(
            "SELECT checkpoint, checkpoint_id FROM treadle.checkpoints "
            "WHERE thread_id = $1 AND checkpoint_ns = '' ORDER BY token DESC, checkpoint_id DESC LIMIT 1",
            run.thread_id,
        )
        assert row is not None, "the thread has no checkpoint"
        checkpoint = row["checkpoint"]
        values = dict(checkpoint["channel_values"])
        serde = StrictSerializer()
        for channel, version in checkpoint["channel_versions"].items():
            blob = await self.operator.fetchrow(
                "SELECT type, blob FROM treadle.checkpoint_blobs WHERE thread_id = $1 AND checkpoint_ns = '' "
                "AND channel = $2 AND version = $3",
                run.thread_id,
                channel,
                version,
            )
            if blob is not None and blob["type"] != "empty":
                values[channel] = serde.loads_typed((blob["type"], blob["blob"]))
        return values

    async def steps(self, run: StoredRun) -> list[int]:
        """The steps of the run's checkpoints in the order of their lineage from the newest back."""
        rows = await self.operator.fetch(
            "SELECT checkpoint_id, parent_checkpoint_id, (metadata ->> 'step')::int AS step "
            "FROM treadle.checkpoints WHERE thread_id = $1 AND checkpoint_ns = '' "
            "ORDER BY token DESC, checkpoint_id DESC",
            run.thread_id,
        )
        by_id = {row["checkpoint_id"]: row for row in rows}
        steps, current = [], rows[0] if rows else None
        while current is not None:
            steps.append(int(current["step"]))
            current = by_id.get(current["parent_checkpoint_id"])
        return steps[::-1]

    async def files(self, run: StoredRun) -> dict[str, bytes]:
        """The thread's workspace as the store has it."""
        row = await self.operator.fetchrow(
            "SELECT m.entries FROM treadle.threads t JOIN treadle.workspace_manifests m "
            "ON m.thread_id = t.thread_id AND m.manifest_id = t.head_manifest WHERE t.thread_id = $1",
            run.thread_id,
        )
        found = {}
        for entry in row["entries"] if row else []:
            data = await self.operator.fetchval(
                "SELECT data FROM treadle.blobs WHERE sha256 = decode($1, 'hex')", entry["sha256"]
            )
            found[entry["path"]] = data
        return found
