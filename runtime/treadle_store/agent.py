"""What an agent does with its run: take, claim, heartbeat, finalize, settle. The agent's role may no more."""

from uuid import UUID

from treadle_api.records import (
    Assignment,
    Capability,
    Claim,
    FencingToken,
    Json,
    RunStatus,
    RunUID,
    Settled,
    ThreadID,
)
from treadle_store.errors import CancelWon, StoreRejected
from treadle_store.pool import Executor
from treadle_store.sanitise import clean, clean_payload
from treadle_store.statement import fenced, fetch_one
from treadle_store.workspace import entries_from_json


async def take_assignment(db: Executor, pod_key: str, pod_uid: str) -> Assignment | None:
    """The attempt that this pod is to execute; None while there is none, or when it belongs to another by
    now.

    Repeatable until another pod claims it (10-agent-pods). Raises StoreError.
    """
    row = await fetch_one(db, "SELECT * FROM treadle.take_assignment($1, $2)", pod_key, pod_uid)
    if row is None:
        return None
    return Assignment(
        capability=Capability(
            thread_id=ThreadID(str(row["thread_id"])),
            run_id=RunUID(row["run_id"]),
            token=FencingToken(row["token"]),
            fence_key=row["fence_key"],
        ),
        namespace=row["namespace"],
        run_name=row["run_name"],
        thread_key=row["thread_key"],
        attempt=row["attempt"],
        log=row["log"],
        config=row["config"],
    )


async def claim_run(db: Executor, cap: Capability, pod_uid: str, nonce: str) -> Claim:
    """Makes `<pod_uid>/<nonce>` the holder and the run `running`; the state to continue from.

    The same holder may claim again. Raises StaleToken also when another holder has the attempt.
    """
    row = await fenced(db, cap, "claim_run", "$5, $6", pod_uid, nonce)
    return Claim(
        head_checkpoint=row["head_checkpoint"],
        head_seq=row["head_seq"],
        input=row["input"],
        files=entries_from_json(row["files"]),
        manifest=None if row["manifest"] is None else entries_from_json(row["manifest"]),
        manifest_run=None if row["manifest_run"] is None else RunUID(row["manifest_run"]),
        baseline=entries_from_json(row["baseline"]),
        cancel=row["cancel"],
    )


async def heartbeat(db: Executor, cap: Capability) -> str | None:
    """Confirms the token; the cancel that was asked for, if any. Raises StaleToken."""
    cancel: str | None = (await fenced(db, cap, "heartbeat"))["cancel"]
    return cancel


async def begin_finalizing(db: Executor, cap: Capability) -> None:
    """The point of no return against cancel: after it, no cancel changes the outcome.

    Raises CancelWon when a cancel was accepted first, StaleToken.
    """
    row = await fenced(db, cap, "begin_finalizing")
    if row["status"] == RunStatus.FINALIZING:
        return
    if row["cancel"] is not None:
        raise CancelWon
    raise StoreRejected("NotRunning", f"the run is {row['status']}: claim it before it can end")


async def settle_run(
    db: Executor,
    cap: Capability,
    *,
    outcome: RunStatus,
    end: Json,
    receipt: Json,
    end_event_id: UUID,
    delivery_event_id: UUID,
) -> Settled:
    """Ends the run in one statement: end event, receipt, terminal status, free slot (03-ownership, step 8).

    `already`: an earlier call of this attempt committed, with this outcome. `cancel_won`: settle it as
    cancelled. The store stamps run, thread, attempt, token and outcome into the receipt. Raises StaleToken,
    StoreRejected (`ArtifactMissing`: a file of `receipt["artifacts"]` whose blob is not in the store).
    """
    row = await fenced(
        db,
        cap,
        "settle_run",
        "$5::text, $6::jsonb, $7::jsonb, $8::uuid, $9::uuid",
        outcome.value,
        clean_payload(end),
        clean(receipt),
        end_event_id,
        delivery_event_id,
    )
    if row["result"] == "not_running":
        raise StoreRejected("NotRunning", f"the run is {row['outcome']}: claim it before it can end")
    return Settled(result=row["result"], outcome=RunStatus(row["outcome"]))
