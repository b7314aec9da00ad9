"""The objects as last seen, newest resourceVersion first: fed by the watch, by lists, and by our own writes.

Our writes put the returned object in (write-through), so their echoes on the watch are not news and wake
nobody. The cache is a hint: what cannot be taken back is preceded by a live GET (`observe`). Objects keep no
`managedFields`; finished Runs are kept until they are cleaned up and no longer.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeVar

from treadle_api.names import LABEL_RUN
from treadle_api.records import Json
from treadle_operator.selection import FINISHED_PHASES

ObjectId = tuple[str, str, str]
"""(resource, namespace, name)"""

G = TypeVar("G")


class Cache:
    def __init__(self) -> None:
        self._objects: dict[ObjectId, Json] = {}
        self._by_resource: defaultdict[str, set[ObjectId]] = defaultdict(set)
        self._pods_of_run: defaultdict[str, set[ObjectId]] = defaultdict(set)
        self._runs_of_thread: defaultdict[tuple[str, str], set[ObjectId]] = defaultdict(set)
        self._run_by_uid: dict[str, ObjectId] = {}
        self._threads_with_key: defaultdict[tuple[str, str], set[ObjectId]] = defaultdict(set)

    def get(self, resource: str, namespace: str, name: str) -> Json | None:
        return self._objects.get((resource, namespace, name))

    def put(self, resource: str, seen: Json) -> bool:
        """Keeps `seen` unless a newer one is known. True when it is news: other than what was known."""
        identity = _identity(resource, seen)
        known = self._objects.get(identity)
        if known is not None and version(known) >= version(seen):
            return False
        if known is not None:
            self._unindex(identity, known)
        seen["metadata"].pop("managedFields", None)
        self._objects[identity] = seen
        self._index(identity, seen)
        return True

    def remove(self, resource: str, gone: Json) -> bool:
        """Forgets the object, unless a newer one (a namesake) is known. True when it was known."""
        identity = _identity(resource, gone)
        known = self._objects.get(identity)
        if known is None or (uid(known) != uid(gone) and version(known) > version(gone)):
            return False
        return self.forget(identity)

    def forget(self, identity: ObjectId) -> bool:
        known = self._objects.pop(identity, None)
        if known is None:
            return False
        self._unindex(identity, known)
        return True

    def all(self, resource: str) -> Iterator[Json]:
        return (self._objects[identity] for identity in tuple(self._by_resource[resource]))

    def identities(self, resource: str) -> frozenset[ObjectId]:
        return frozenset(self._by_resource[resource])

    def count(self, resource: str) -> int:
        return len(self._by_resource[resource])

    def pods_of_run(self, run_uid: str) -> list[Json]:
        return self._sorted(self._pods_of_run.get(run_uid, ()))

    def run_by_uid(self, run_uid: str) -> Json | None:
        identity = self._run_by_uid.get(run_uid)
        return self._objects.get(identity) if identity is not None else None

    def runs_of_thread(self, namespace: str, thread: str) -> list[Json]:
        return self._sorted(self._runs_of_thread.get((namespace, thread), ()))

    def threads_with_key(self, namespace: str, thread_key: str) -> list[Json]:
        return self._sorted(self._threads_with_key.get((namespace, thread_key), ()))

    def _sorted(self, identities: Iterable[ObjectId]) -> list[Json]:
        return [self._objects[identity] for identity in sorted(identities)]

    def _index(self, identity: ObjectId, seen: Json) -> None:
        self._by_resource[identity[0]].add(identity)
        if identity[0] == "pods":
            self._pods_of_run[run_of_child(seen)].add(identity)
        elif identity[0] == "runs":
            self._runs_of_thread[identity[1], thread_of_run(seen)].add(identity)
            self._run_by_uid[uid(seen)] = identity
        elif identity[0] == "threads":
            self._threads_with_key[identity[1], key_of_thread(seen)].add(identity)

    def _unindex(self, identity: ObjectId, known: Json) -> None:
        self._by_resource[identity[0]].discard(identity)
        if identity[0] == "pods":
            _discard(self._pods_of_run, run_of_child(known), identity)
        elif identity[0] == "runs":
            _discard(self._runs_of_thread, (identity[1], thread_of_run(known)), identity)
            self._run_by_uid.pop(uid(known), None)
        elif identity[0] == "threads":
            _discard(self._threads_with_key, (identity[1], key_of_thread(known)), identity)


def uid(obj: Json) -> str:
    return str(obj["metadata"].get("uid", ""))


def version(obj: Json) -> int:
    """resourceVersion as a number: comparable within one resource of one API server (KEP-5504)."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def run_of_child(obj: Json) -> str:
    """The run uid that a Pod or Lease is labelled with, "" where it is not."""
    return str((obj["metadata"].get("labels") or {}).get(LABEL_RUN, ""))


def thread_of_run(run: Json) -> str:
    return str(((run.get("spec") or {}).get("threadRef") or {}).get("name", ""))


def key_of_thread(thread: Json) -> str:
    """What the store knows it by: its threadID, or its uid where none was chosen."""
    return str((thread.get("spec") or {}).get("threadID") or uid(thread))


def finished(run: Json) -> bool:
    return (run.get("status") or {}).get("phase") in FINISHED_PHASES


def _identity(resource: str, obj: Json) -> ObjectId:
    return resource, obj["metadata"]["namespace"], obj["metadata"]["name"]


def _discard(groups: dict[G, set[ObjectId]], group: G, identity: ObjectId) -> None:
    members = groups.get(group, set())
    members.discard(identity)
    if not members:
        groups.pop(group, None)
