"""Publishing: committed before shown, in order, never in the run's way."""

import asyncio
from collections.abc import Sequence

import pytest

from treadle_api.records import FencingToken, Frame, RunUID
from treadle_runtime.events import make_event
from treadle_runtime.publish import Broadcast
from treadle_store.streams import WireUnavailable


class FakeWire:
    """The publishing half of the wire, as far as the broadcast may rely on it."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.calls = 0
        self.away = False
        self.stale = False
        self.ends: list[str] = []
        self.nudges: list[str] = []

    async def publish(self, frames: Sequence[Frame]) -> bool:
        self.calls += 1
        if self.away:
            raise WireUnavailable("publishing", "ConnectionError")
        if self.stale:
            return False
        self.frames.extend(frames)
        return True

    async def publish_end(self, outcome: str) -> bool:
        if self.away:
            raise WireUnavailable("publishing", "ConnectionError")
        self.ends.append(outcome)
        return True

    async def nudge(self, what: str) -> None:
        self.nudges.append(what)


def broadcast(wire: FakeWire | None) -> Broadcast:
    return Broadcast(wire, RunUID("r"), FencingToken(3), head_seq=5)


async def shown(sender: Broadcast, wire: FakeWire) -> list[tuple[str, str]]:
    await sender.end("success")
    return [(frame.id, frame.type) for frame in wire.frames]


@pytest.mark.req("R41", "R56")
async def test_committed_events_carry_their_seq_and_deltas_follow_them() -> None:
    wire = FakeWire()
    async with broadcast(wire) as sender:
        sender.delta("messages", {"content": "to"})
        sender.committed([make_event("message", {}), make_event("todo", {})], 6)
        sender.delta("messages", {"content": "ken"})
        assert await shown(sender, wire) == [
            ("5-*", "messages"),
            ("6-0", "message"),
            ("7-0", "todo"),
            ("7-*", "messages"),
        ]
    assert wire.ends == ["success"]
    assert wire.nudges == ["settled"]
    assert wire.calls == 1, "one micro-batch"


@pytest.mark.req("R41")
async def test_an_update_is_shown_only_when_its_step_is_committed() -> None:
    wire = FakeWire()
    async with broadcast(wire) as sender:
        sender.hold("updates", {"update": 1})
        assert await shown(sender, wire) == []
        sender.committed([make_event("checkpoint", {})], 6)
        sender.step_committed()
        assert await shown(sender, wire) == [("6-0", "checkpoint"), ("6-*", "updates")]


async def test_an_absent_wire_is_said_and_stops_nothing() -> None:
    wire = FakeWire()
    wire.away = True
    async with broadcast(wire) as sender:
        for number in range(10):
            sender.committed([make_event("message", {})], 6 + number)
        await sender.end("success")
        assert sender.degraded
        wire.away = False
        sender.delta("messages", {})
        await sender.end("success")
        assert not sender.degraded
    async with broadcast(None) as silent:
        silent.delta("messages", {})
        await silent.end("success")
        assert silent.degraded


@pytest.mark.req("R20")
async def test_a_stale_publisher_says_nothing_more() -> None:
    wire = FakeWire()
    wire.stale = True
    async with broadcast(wire) as sender:
        sender.delta("messages", {})
        await asyncio.wait_for(sender._queue.join(), 5)
        wire.stale = False
        sender.delta("messages", {})
        await sender.end("success")
    assert wire.frames == []
    assert wire.ends == []
