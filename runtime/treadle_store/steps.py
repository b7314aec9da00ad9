"""A whole step of a run - events, pending writes, checkpoints - as one fenced statement and one commit."""

from collections.abc import Sequence

from treadle_api.records import Appended, Capability, Event, Manifest
from treadle_store.checkpoints import CheckpointRow, WriteRow, columns
from treadle_store.events import event_rows
from treadle_store.pool import Executor, encode_json
from treadle_store.statement import fenced
from treadle_store.workspace import entries_to_json

_PARAMETERS = ", ".join(f"${number}" for number in range(5, 25))
_WITH_MANIFEST = f"$25::jsonb, $26::uuid, {_PARAMETERS}"


async def commit_step(
    db: Executor,
    cap: Capability,
    *,
    events: Sequence[Event] = (),
    writes: Sequence[WriteRow] = (),
    checkpoints: Sequence[CheckpointRow] = (),
    manifest: Manifest | None = None,
    retry: bool = False,
) -> Appended:
    """Write all of it or nothing, in one statement. `manifest` becomes the thread's workspace.

    `retry` says that the same step may have been committed before, its answer lost: it has one effect all the
    same, and `new` counts only what this call added.

    Raises StaleToken, StoreFailedOver, StoreUnavailable, StoreRejected (a reserved event type, too large,
    a manifest entry without its blob).
    """
    blobs = [(row.ns, *blob) for row in checkpoints for blob in row.blobs]
    heads = [
        (row.ns, row.id, row.parent, encode_json(row.checkpoint), encode_json(row.metadata))
        for row in checkpoints
    ]
    rows = [event_rows(events), retry, *columns(writes, 8), *columns(heads, 5), *columns(blobs, 5)]
    if manifest is None:
        row = await fenced(db, cap, "commit_step", _PARAMETERS, *rows)
    else:
        entries = entries_to_json(manifest.entries)
        row = await fenced(
            db, cap, "commit_step_with_manifest", _WITH_MANIFEST, *rows, entries, manifest.manifest_id
        )
    return Appended(first=row["first_seq"], last=row["last_seq"], new=row["added"], cancel=row["cancel"])
