"""Every cursor on every window: events complete and once, deltas in order, every possible hole told."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.live_runs import LiveRun, LiveRuns
from support.redis_server import RedisServer
from treadle_api.names import stream_key
from treadle_gateway.cursor import Cursor
from treadle_gateway.follow import Follower, Pace
from treadle_gateway.records import Records
from treadle_store.streams import Reader, open_reader

EVENTS = 6
PACE = Pace(wired=0.02, polling=0.02)


@dataclass(frozen=True)
class History:
    """What happened on the wire: deltas behind each event, and events that did not reach it."""

    deltas: tuple[int, ...]
    unpublished: frozenset[int]
    trimmed: int
    """Entries thrown away from the oldest end."""

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Everything that was ever put on the wire, in order."""
        return [
            (seq, n)
            for seq, count in enumerate(self.deltas, start=1)
            for n in range(count + 1)
            if n or seq not in self.unpublished
        ]

    @property
    def kept(self) -> list[tuple[int, int]]:
        return self.entries[self.trimmed :]


HISTORIES = st.builds(
    History,
    st.tuples(*[st.integers(0, 3)] * EVENTS),
    st.frozensets(st.integers(1, EVENTS), max_size=3),
    st.integers(0, 12),
)
CURSORS = st.none() | st.tuples(st.integers(0, EVENTS + 3), st.integers(0, 4))


@dataclass
class Stage:
    server: RedisServer
    reader: Reader
    records: Records
    run: LiveRun

    async def play(self, history: History) -> None:
        stream = stream_key(self.run.namespace, self.run.view.thread_id, self.run.view.log)
        await self.server.call("DEL", stream)
        for seq, n in history.kept:
            fields = ("run", self.run.view.run_id, "token", 1, "type", "d" if n else "message", "data", "{}")
            await self.server.call("XADD", stream, f"{seq}-{n}", *fields)

    async def watch(self, after: tuple[int, int] | None) -> list[tuple[str, tuple[int, int]]]:
        cursor = Cursor(self.run.view.log, *after) if after else None
        follower = Follower(self.records, self.reader, self.run.view, PACE)
        seen = []
        async for frame in follower.follow(cursor):
            at = Cursor.parse(frame.id or "")
            assert at is not None
            seen.append((str(frame.event), at.position))
        return seen


@pytest.fixture
async def stage(wireless: LiveRuns, redis_server: RedisServer) -> AsyncIterator[Stage]:
    """A settled run whose stream each example makes anew; its log ends with run.end and run.delivery."""
    run = await wireless.start()
    for number in range(1, EVENTS + 1):
        await run.say(str(number))
    await run.settle()
    await run.look()
    async with open_reader(redis_server.admin_url, max_connections=1) as reader:
        yield Stage(redis_server, reader, Records(wireless.gateway_pool), run)


@pytest.mark.req("R42")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORIES, after=CURSORS)
async def test_events_are_complete_deltas_in_order_and_holes_told(
    stage: Stage, history: History, after: tuple[int, int] | None
) -> None:
    await stage.play(history)
    seen = await stage.watch(after)
    head = EVENTS + 2
    start = after if after and after[0] <= head else (0, 0)

    events = [at[0] for event, at in seen if event in {"message", "run.end", "run.delivery"}]
    assert events == list(range(start[0] + 1, head + 1))

    deltas = [at for event, at in seen if event == "d"]
    reachable = [at for at in history.kept if at > start and at[1]]
    assert deltas == reachable

    spoken = [at for event, at in seen if event in {"message", "d", "run.end", "run.delivery"}]
    assert spoken == sorted(spoken)
    assert [event for event, _ in seen][-1] == "end"

    gaps = [at for event, at in seen if event == "gap"]
    lost = [at for at in history.entries[: history.trimmed] if at > start and at[1]]
    watched = after is not None and start == after
    if watched and lost:
        assert gaps, f"deltas {lost} are missing and nobody says so"
    if any(at <= start for at in history.kept):
        assert not gaps, "an entry at or before the cursor is there: nothing behind it was trimmed"
    assert ("reset" in [event for event, _ in seen]) == (after is not None and after[0] > head)
