"""What wakes the operator over Redis, in every namespace that it watches."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from treadle_api.records import FencingToken, RunUID, ThreadID
from treadle_operator.intake import Intake
from treadle_operator.ledger import Ledger
from treadle_operator.sources import Nudges, StorePoll
from treadle_operator.stream import Stream
from treadle_store.errors import StoreUnavailable
from treadle_store.overview import Grant
from treadle_store.streams import Nudge

CONNECTED = Nudge(namespace="", run_id=None, what="connected")


class Parts:
    """Stream, ledger, poll and intake in one, which write down what is asked of them."""

    def __init__(self, *heard: Nudge) -> None:
        self.heard = heard
        self.asked: list[list[str]] = []
        self.did: list[str] = []
        self.store_away = False

    async def nudges(self, namespaces: Sequence[str]) -> AsyncIterator[Nudge]:
        self.asked.append(list(namespaces))
        for nudge in self.heard:
            yield nudge

    async def once(self) -> None:
        if self.store_away:
            raise StoreUnavailable("away", maybe_committed=False)
        self.did.append("poll")

    async def grants(self, namespace: str | None) -> AsyncIterator[Grant]:
        yield Grant(str(namespace), ThreadID(f"t-{namespace}"), "1i1", FencingToken(1), b"key")

    async def grant(self, namespace: str, *_: object) -> None:
        self.did.append(f"grant {namespace}")

    def nudged(self, run_uid: str) -> None:
        self.did.append(f"wake {run_uid}")


async def listened(parts: Parts, *namespaces: str | None) -> list[str]:
    anything = cast(Any, parts)
    nudges = Nudges(
        cast(Stream, anything),
        cast(Ledger, anything),
        cast(StorePoll, anything),
        cast(Intake, anything),
        namespaces,
    )
    await nudges.listen()
    return parts.did


def settled(namespace: str, run: str) -> Nudge:
    return Nudge(namespace, RunUID(run), "settled")


async def test_all_watched_namespaces_are_heard_through_one_subscription() -> None:
    parts = Parts(CONNECTED, settled("a", "r1"), settled("d", "r2"))
    assert await listened(parts, "a", "b", "c", "d") == [
        "poll",
        "grant a",
        "grant b",
        "grant c",
        "grant d",
        "wake r1",
        "wake r2",
    ]
    assert parts.asked == [["a", "b", "c", "d"]]


async def test_without_named_namespaces_the_whole_cluster_is_heard() -> None:
    parts = Parts(CONNECTED, settled("a", "r1"))
    assert await listened(parts, None) == ["poll", "grant None", "wake r1"]
    assert parts.asked == [[]]


async def test_a_store_that_is_away_when_redis_comes_back_ends_no_listening() -> None:
    parts = Parts(CONNECTED, settled("a", "r1"))
    parts.store_away = True
    assert await listened(parts, "a") == ["wake r1"]
