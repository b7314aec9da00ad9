"""Good and bad Threads."""

from support.api_objects import ABSENT, Case, thread

_LABEL = "use letters, digits"

THREADS: tuple[Case, ...] = (
    Case("a thread", thread()),
    Case(
        "a thread with everything",
        thread(threadID="Sales.2026-q1_a", maxQueuedRuns=0, deletionPolicy="Delete"),
    ),
    Case("a thread without an agent", thread(agentRef=ABSENT), "spec.agentRef: Required value"),
    Case(
        "a thread with a dot in its name",
        thread("sales.eu"),
        "metadata.name: a Thread's name may have at most 63",
    ),
    Case(
        "a thread with a blank in its id", thread(threadID="a b"), f"spec.threadID: Invalid value: … {_LABEL}"
    ),
    Case("a thread with an empty id", thread(threadID=""), "spec.threadID"),
    Case("a thread that lets 1001 runs wait", thread(maxQueuedRuns=1001), "spec.maxQueuedRuns"),
    Case(
        "a thread with an unknown deletion policy",
        thread(deletionPolicy="Keep"),
        "spec.deletionPolicy: Unsupported value",
    ),
)
