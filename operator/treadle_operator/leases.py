"""What the operator knows about the runs' Leases: LISTed by label in one loop, never watched.

A Lease is silent for as long as its resourceVersion has not changed, measured by our own monotonic clock
alone: `renewTime` is never compared with any clock (03-ownership, "Lease loss"). Only time between two lists
that both worked and were close together counts, so that an API server out of reach never looks like a silent
holder; after a restart of the operator the wait starts again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from treadle_api.names import ANNOTATION_POD
from treadle_api.records import Json
from treadle_operator.cache import run_of_child

LIST_EVERY: Final = 5.0
GAP: Final = 3 * LIST_EVERY
"""Two lists further apart than this (seconds) prove nothing about the time between them."""


@dataclass(frozen=True, slots=True)
class LeaseObservation:
    """One Lease as last listed. `silent` in seconds, `seen_at` by our monotonic clock."""

    name: str
    resource_version: str
    holder: str
    """holderIdentity, `<pod uid>/<nonce>`; empty before a claim and after a release."""
    pod: str
    """The name of the pod that may take it."""
    silent: float
    seen_at: float
    uid: str


class LeaseBook:
    """Observations by run uid. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, LeaseObservation] = {}

    def of_run(self, run_uid: str) -> LeaseObservation | None:
        return self._known.get(run_uid)

    def __len__(self) -> int:
        return len(self._known)

    def listed(self, leases: Iterable[Json], *, began: float) -> set[str]:
        """Takes in one complete list that was asked for at `began` (by the clock of this book).

        Returns the runs whose holder or Lease changed (not mere renewals). What was written or read since
        `began` is newer than the list and stays.
        """
        now = self._clock()
        current: dict[str, LeaseObservation] = {}
        changed: set[str] = set()
        for lease in leases:
            run = run_of_child(lease)
            before = self._known.get(run)
            seen = _observed(lease, now, before)
            current[run] = seen
            if before is None or (before.holder, before.pod, before.uid) != (seen.holder, seen.pod, seen.uid):
                changed.add(run)
        for run in self._known.keys() - current.keys():
            if self._known[run].seen_at >= began:
                current[run] = self._known[run]
            else:
                changed.add(run)
        self._known = current
        return changed

    def seen(self, lease: Json) -> LeaseObservation:
        """Takes in one Lease that was read or written live."""
        run = run_of_child(lease)
        observation = _observed(lease, self._clock(), self._known.get(run))
        self._known[run] = observation
        return observation

    def forget(self, run_uid: str) -> None:
        self._known.pop(run_uid, None)


def _observed(lease: Json, now: float, before: LeaseObservation | None) -> LeaseObservation:
    metadata = lease["metadata"]
    fresh = LeaseObservation(
        name=metadata["name"],
        resource_version=metadata["resourceVersion"],
        holder=(lease.get("spec") or {}).get("holderIdentity") or "",
        pod=(metadata.get("annotations") or {}).get(ANNOTATION_POD, ""),
        silent=0.0,
        seen_at=now,
        uid=metadata["uid"],
    )
    if before is None or before.resource_version != fresh.resource_version:
        return fresh
    passed = now - before.seen_at
    return replace(fresh, silent=before.silent + (passed if passed <= GAP else 0.0))
