"""The workspace between the pod and the store: restored at the start, captured whenever a step is written.

A manifest travels in the same statement as the writes or the checkpoint of the step that made it. A new
attempt therefore finds either both - the files as they were after a tool, and the tool's answer - or neither,
and executes the tool again on the files as they were before.
"""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from functools import partial
from uuid import uuid4

from treadle_api.contract import BLOB_BYTES_LIMIT
from treadle_api.records import Capability, Claim, Manifest, ManifestEntry
from treadle_runtime.sender import StepSender
from treadle_runtime.workspace.files import Directory, Found, WorkspaceError, media_type
from treadle_runtime.workspace.inflight import InFlight
from treadle_store import workspace as store
from treadle_store.pool import Executor

log = logging.getLogger(__name__)


class BlobMismatch(Exception):
    """The store gave other bytes than the manifest names, or none."""


class WorkspacePlane:
    """The workspace of one run. `entries` is the newest manifest, handed out or restored."""

    def __init__(
        self, db: Executor, capability: Capability, sender: StepSender, directory: Directory
    ) -> None:
        self.directory = directory
        self.in_flight = InFlight()
        self.entries: tuple[ManifestEntry, ...] = ()
        self._db = db
        self._capability = capability
        self._sender = sender
        self._stamps: dict[str, tuple[int, int, int, int]] = {}
        self._lock = asyncio.Lock()

    async def restore(self, claim: Claim) -> None:
        """Lay down the thread's newest manifest, and the Run's own files where this run is new to it.

        Raises StoreError, WorkspaceError, BlobMismatch.
        """
        await asyncio.to_thread(self.directory.prepare)
        self.entries = tuple(sorted(claim.manifest or (), key=lambda entry: entry.path))
        wanted = {entry.path: entry for entry in self.entries}
        if claim.manifest_run != self._capability.run_id:
            wanted.update((entry.path, entry) for entry in claim.files)
        for found in await asyncio.to_thread(self.directory.scan):
            if found.path not in wanted:
                await asyncio.to_thread(self.directory.remove, found.path)
        for entry in wanted.values():
            data = await self._sender.call(partial(self._get, entry.sha256))
            if hashlib.sha256(data).hexdigest() != entry.sha256:
                raise BlobMismatch(f"{entry.path}: the store holds other bytes than sha256 {entry.sha256}")
            await asyncio.to_thread(self.directory.write, entry.path, data, entry.mode)
        known = {entry.path for entry in self.entries}
        self._stamps = {
            found.path: found.stamp
            for found in await asyncio.to_thread(self.directory.scan)
            if found.path in known and wanted[found.path] in self.entries
        }
        log.info("workspace restored", extra={"fields": {"files": len(wanted)}})

    async def capture(self) -> Manifest | None:
        """Bring changed files into the store; the new manifest, or None where nothing changed.

        Files in flight count as they were. The manifest itself is not written here: it goes with the step.
        Raises WorkspaceError for a file or a sum over the limits, StoreError.
        """
        async with self._lock:
            found = await asyncio.to_thread(self.directory.scan)
            before = {entry.path: entry for entry in self.entries}
            held = self.in_flight.paths
            entries = [before[path] for path in held if path in before]
            stamps = {path: self._stamps[path] for path in held if path in self._stamps}
            for file in found:
                if file.path in held:
                    continue
                unchanged = file.path in before and self._stamps.get(file.path) == file.stamp
                entries.append(before[file.path] if unchanged else await self._store(file))
                stamps[file.path] = file.stamp
            self._stamps = stamps
            await self.in_flight.captured()
            captured = tuple(sorted(entries, key=lambda entry: entry.path))
            if captured == self.entries:
                return None
            self.entries = captured
            return Manifest(uuid4(), captured)

    async def _store(self, file: Found) -> ManifestEntry:
        data = await asyncio.to_thread(self.directory.read, file.path)
        if len(data) > BLOB_BYTES_LIMIT:
            raise WorkspaceError(f"{file.path} has {len(data)} bytes, the store takes {BLOB_BYTES_LIMIT}")
        sha256 = hashlib.sha256(data).hexdigest()
        if await self._missing([sha256]):
            await self._sender.call(lambda: store.put_blob(self._db, self._capability, data))
        return ManifestEntry(file.path, sha256, len(data), file.mode, media_type(file.path))

    async def _missing(self, sha256s: Sequence[str]) -> bool:
        return bool(await self._sender.call(lambda: store.missing_blobs(self._db, self._capability, sha256s)))

    async def _get(self, sha256: str) -> bytes:
        return await store.get_blob(self._db, self._capability, sha256)
