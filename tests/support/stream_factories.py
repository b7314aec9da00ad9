"""Assignments and frames for tests of the live wire."""

from typing import Any

from treadle_api.records import Assignment, Capability, FencingToken, Frame, RunUID, ThreadID
from treadle_store.streams import Reader, Wire, WireFrame

NAMESPACE = "team-a"
THREAD = ThreadID("11111111-1111-4111-8111-111111111111")
OTHER_THREAD = ThreadID("22222222-2222-4222-8222-222222222222")
RUN = RunUID("33333333-3333-4333-8333-333333333333")
LOG = "1i1"


def an_assignment(
    token: int = 1, *, thread: ThreadID = THREAD, run: RunUID = RUN, log: str = LOG
) -> Assignment:
    key = f"{thread}/{token}".encode()
    return Assignment(
        capability=Capability(thread, run, FencingToken(token), key),
        namespace=NAMESPACE,
        run_name="a-run",
        thread_key="a-thread",
        attempt=1,
        log=log,
        config={},
    )


async def grant(wire: Wire, assignment: Assignment) -> bool:
    own = assignment.capability
    return await wire.grant(NAMESPACE, own.thread_id, assignment.log, own.token, own.fence_key)


def an_event(seq: int, *, token: int = 1, run: RunUID = RUN, type: str = "message", **data: Any) -> Frame:
    return Frame(f"{seq}-0", run, FencingToken(token), type, data)


def a_delta(seq: int, text: str = "", *, token: int = 1, run: RunUID = RUN) -> Frame:
    return Frame(f"{seq}-*", run, FencingToken(token), "token", {"text": text})


async def whole_stream(reader: Reader, stream: str) -> tuple[WireFrame, ...]:
    """Every frame that the stream holds."""
    window = await reader.locate(stream, (0, 0))
    if window.first is None:
        return ()
    page = await reader.page(stream, window.first, count=10_000, seen=False)
    assert page is not None
    return page.frames
