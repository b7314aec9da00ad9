"""Every world that `observe` could build, and more, as hypothesis strategies."""

from datetime import timedelta

from hypothesis import strategies as st

from support.factories import (
    AGENT,
    NOW,
    PREPARED,
    THREAD,
    attempt_row,
    lease,
    pod,
    receipt,
    record,
    run_object,
)
from treadle_api.reasons import Reason
from treadle_api.records import RunRecord, RunStatus
from treadle_operator.lifecycle.world import (
    NO_LEASE,
    LeaseView,
    PodView,
    Problem,
    RunWorld,
    Terminated,
    ThreadObject,
    Waiting,
)

seconds = st.sampled_from([0.0, 0.3, 1.0, 4.9, 5.0, 44.9, 45.0, 46.0, 120.0, 300.0, 600.0, 100_000.0])
problems = st.builds(
    Problem,
    st.sampled_from(
        [Reason.INPUT_PENDING, Reason.QUEUE_FULL, Reason.INVALID_POD, Reason.POD_CREATION_BACKOFF]
    ),
    st.just("what to change"),
    st.booleans(),
)
threads = st.builds(
    ThreadObject,
    st.just("team"),
    st.just("sales"),
    st.just("thread-uid"),
    st.sampled_from(["reviewer", "other"]),
    st.just("sales"),
    deleting=st.booleans(),
)


@st.composite
def pods(draw: st.DrawFn) -> PodView:
    attempt = draw(st.integers(1, 5))
    alive = draw(st.booleans())
    end = st.builds(
        Terminated,
        st.sampled_from([0, 1, 75, 78, 86, 137]),
        st.sampled_from(["", "Drained", "CheckpointIncompatible", "no word at all"]),
        st.sampled_from(["", "it said so"]),
        st.booleans(),
    )
    waiting = st.builds(
        Waiting,
        st.sampled_from(["ErrImagePull", "Unschedulable", "ContainerCreating", "?"]),
        st.just(""),
        seconds,
    )
    return pod(
        attempt,
        uid=draw(st.sampled_from([f"pod-uid-{attempt}", "namesake"])),
        alive=alive,
        terminated=None if alive else draw(st.none() | end),
        waiting=draw(st.none() | waiting) if alive else None,
        deleting=draw(st.booleans()),
        disruption=draw(st.sampled_from(["", "EvictionByEvictionAPI", "SomethingNew"])),
        dead_for=0.0 if alive else draw(seconds),
    )


@st.composite
def leases(draw: st.DrawFn) -> LeaseView:
    attempt = draw(st.integers(1, 5))
    holder = draw(st.sampled_from(["", f"pod-uid-{attempt}/nonce", "stranger/nonce"]))
    view = lease(attempt, holder=holder, silent_for=draw(seconds))
    return draw(st.sampled_from([view, NO_LEASE]))


@st.composite
def records(draw: st.DrawFn) -> RunRecord:
    status = draw(st.sampled_from(RunStatus))
    attempt = 0 if status is RunStatus.PENDING else draw(st.integers(1, 5))
    age = timedelta(seconds=draw(seconds))
    rows = tuple(
        attempt_row(n, 6 + n, started=NOW - age, pod_uid=draw(st.sampled_from([None, f"pod-uid-{n}"])))
        for n in range(1, attempt + 1)
    )
    proof = receipt(draw(st.sampled_from(sorted(RunStatus))), 6 + attempt - draw(st.integers(0, 1)))
    changes = {
        "attempt": attempt,
        "attempts": rows,
        "started_at": draw(st.sampled_from([None, NOW - age])),
        "retries": draw(st.integers(0, 4)),
        "disruptions": draw(st.integers(0, 11)),
        "queue_position": draw(st.integers(0, 2)) if status is RunStatus.PENDING else -1,
        "cancel": draw(st.sampled_from([None, "Immediate"])),
        "receipt": draw(st.sampled_from([None, proof])) if status.terminal else None,
        "checkpoint_id": draw(st.sampled_from([None, "c-1"])),
    }
    unread = {"config": {"lease": "of a newer operator"}} if draw(st.integers(0, 9)) == 0 else {}
    return record(status, **changes, **unread)


@st.composite
def worlds(draw: st.DrawFn) -> RunWorld:
    stored = draw(st.none() | records())
    store_down = draw(st.none() | seconds) if stored is None else None
    run = run_object(
        finalizer=draw(st.booleans()),
        deleting=draw(st.booleans()),
        template_agent=draw(st.sampled_from([None, "reviewer"])),
        generation=draw(st.integers(1, 2)),
    )
    return RunWorld(
        run=run,
        now=NOW,
        seen_for=draw(seconds),
        thread=draw(st.none() | st.just(THREAD) | threads),
        agent=draw(st.sampled_from([None, AGENT])),
        prepared=draw(st.none() | st.just(PREPARED) | problems) if stored is None else None,
        pods=tuple(draw(st.lists(pods(), max_size=3))),
        lease=draw(leases()),
        record=stored,
        record_for=draw(seconds),
        store_down_for=store_down,
        deleting_for=draw(seconds),
        refused=draw(st.none() | problems),
    )
