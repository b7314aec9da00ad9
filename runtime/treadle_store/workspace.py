"""The workspace plane: content-addressed blobs and fenced manifests; artifacts for whoever downloads them."""

import re
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from treadle_api.records import Capability, Json, ManifestEntry, RunUID
from treadle_store.errors import StoreRejected
from treadle_store.pool import Executor
from treadle_store.sanitise import clean
from treadle_store.statement import fenced, fetch_one

_FILE_MODE = 0o644
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(; charset=[\w-]{1,40})?")


def entries_from_json(entries: Sequence[Json]) -> tuple[ManifestEntry, ...]:
    """Manifest entries as the store keeps them."""
    return tuple(
        ManifestEntry(
            path=entry["path"],
            sha256=entry["sha256"],
            size=entry["size"],
            mode=entry.get("mode", _FILE_MODE),
            media_type=entry.get("media_type", "application/octet-stream"),
        )
        for entry in entries
    )


def entries_to_json(entries: Sequence[ManifestEntry]) -> list[Json]:
    """Manifest entries as `put_manifest` takes them."""
    return [
        {
            "path": entry.path,
            "sha256": entry.sha256,
            "size": entry.size,
            "mode": entry.mode,
            "media_type": entry.media_type,
        }
        for entry in entries
    ]


async def put_blob(db: Executor, cap: Capability, data: bytes) -> str:
    """Stores one file's bytes (at most 32 MiB) for the thread. Returns the sha256 hex that the server
    computed.

    Idempotent. Raises StaleToken, StoreRejected (`BlobTooLarge`).
    """
    sha256: str = (await fenced(db, cap, "put_blob", "$5::bytea", data))["sha256"]
    return sha256


async def missing_blobs(db: Executor, cap: Capability, sha256s: Collection[str]) -> set[str]:
    """Those of the hashes that the thread has no bytes for. Raises StaleToken."""
    return set((await fenced(db, cap, "missing_blobs", "$5::text[]", list(sha256s)))["missing"])


async def get_blob(db: Executor, cap: Capability, sha256: str) -> bytes:
    """The bytes of one of the thread's own blobs. Raises StaleToken, StoreRejected (`BlobMissing`)."""
    data: bytes | None = (await fenced(db, cap, "get_blob", "$5::text", sha256))["data"]
    if data is None:
        raise StoreRejected("BlobMissing", f"the thread has no file with sha256 {sha256}")
    return data


async def put_manifest(
    db: Executor, cap: Capability, entries: Sequence[ManifestEntry], manifest_id: UUID
) -> None:
    """Makes these files the thread's workspace. Their blobs must be there.

    Idempotent by `manifest_id`: a repeated call never replaces a later manifest. Raises StaleToken,
    StoreRejected (`BlobMissing`, `ManifestInvalid`).
    """
    await fenced(db, cap, "put_manifest", "$5::jsonb, $6::uuid", clean(entries_to_json(entries)), manifest_id)


async def read_artifact(db: Executor, run_id: RunUID, path: str) -> tuple[ManifestEntry, bytes] | None:
    """A file that the run's receipt lists, with its bytes; None where it lists no such path. For the gateway.

    The bytes are those that the receipt's sha256 names, whatever the workspace holds by now. Raises
    StoreError.
    """
    row = await fetch_one(
        db,
        """
        SELECT a.entry, b.data
          FROM treadle.receipts q
          JOIN treadle.runs r ON r.run_id = q.run_id
         CROSS JOIN LATERAL jsonb_array_elements(
           CASE WHEN jsonb_typeof(q.payload -> 'artifacts') = 'array' THEN q.payload -> 'artifacts' END
         ) a (entry)
          JOIN treadle.thread_blobs tb
            ON tb.thread_id = r.thread_id AND tb.sha256 = decode(a.entry ->> 'sha256', 'hex')
          JOIN treadle.blobs b ON b.sha256 = tb.sha256
         WHERE q.run_id = $1 AND q.kind = 'run.delivery' AND a.entry ->> 'path' = $2
         LIMIT 1
        """,
        run_id,
        path,
    )
    if row is None:
        return None
    entry: dict[str, Any] = row["entry"]
    media_type = str(entry.get("media_type"))
    return (
        ManifestEntry(
            path=path,
            sha256=entry["sha256"],
            size=entry["bytes"],
            mode=_FILE_MODE,
            # An agent wrote it, and it becomes a header.
            media_type=media_type if _MEDIA_TYPE.fullmatch(media_type) else "application/octet-stream",
        ),
        row["data"],
    )
