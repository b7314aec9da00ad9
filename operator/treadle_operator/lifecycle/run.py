"""`decide_run`: what to do about one Run, and what to show, from everything that was seen of it.

Total, deterministic and stable: every world has an answer; deciding again with the new status repeats only
idempotent actions and changes nothing. The first rule that matches wins; this list is the specification and
the order of the code:

 1. deleted and our finalizer is gone: nothing
 2. deleted and the store does not answer: end the pods; let go when the time is over
 3. deleted and not in the store: let go
 4. deleted and not ended: cancel, then settle as cancelled
 5. deleted and ended: end the pods, then let go
 6. the store does not answer: keep what is shown and say so
 7. Finished is shown and no receipt stands behind it: it stands
 8. a verified receipt: the terminal status; clean up
 9. ended without a verified receipt: look again, in the end ReceiptMissing
10. not admitted and something is missing or wrong: wait with its reason, in the end fail with it
11. not admitted and there is no Thread: create it from the template
12. not admitted: admit
13. no finalizer: add it
14. not its turn: ThreadBusy
15. its turn: assign, Lease, pod
16. parked: keep what is shown
17. activeSeconds are over: settle as timeout
18. finalizing for too long: settle as error
19. the pod ended well and left no receipt: look a second time
20. the loss cannot be mended: settle as error
21. the budget for this class of loss is used up: settle as error
22. the back-off is not over: RetryBackoff
23. lost: assign the next attempt, end the old pod, Lease, new pod
24. claimed and a living pod: Running
25. claimed and no pod: wait the Lease out
26. the image could not be pulled within its grace: settle as error
27. a living pod: Starting
28. the pod was refused for good: settle as error
29. assigned and no pod yet: the same attempt's pod
"""

from collections.abc import Callable

from treadle_operator.lifecycle import ending, entering, executing
from treadle_operator.lifecycle.actions import RunDecision
from treadle_operator.lifecycle.seen import Seen
from treadle_operator.lifecycle.world import RunWorld

OUTSIDE: tuple[tuple[str, Callable[[RunWorld], RunDecision | None]], ...] = (
    ("deleted and our finalizer is gone: nothing", ending.deleted_and_free),
    (
        "deleted and the store does not answer: end the pods; let go when the time is over",
        ending.deleted_without_store,
    ),
    ("deleted and not in the store: let go", ending.deleted_unknown),
    ("deleted and not ended: cancel, then settle as cancelled", ending.deleted_unfinished),
    ("deleted and ended: end the pods, then let go", ending.deleted_ended),
    ("the store does not answer: keep what is shown and say so", entering.store_down),
    ("Finished is shown and no receipt stands behind it: it stands", ending.stands),
    ("a verified receipt: the terminal status; clean up", ending.receipt),
    ("ended without a verified receipt: look again, in the end ReceiptMissing", ending.no_receipt),
    (
        "not admitted and something is missing or wrong: wait with its reason, in the end fail with it",
        entering.cannot_admit,
    ),
    ("not admitted and there is no Thread: create it from the template", entering.create_thread),
    ("not admitted: admit", entering.admit),
    ("no finalizer: add it", entering.add_finalizer),
    ("not its turn: ThreadBusy", entering.not_its_turn),
    ("its turn: assign, Lease, pod", entering.its_turn),
)
"""Rules for a Run that is on its way in or out."""

WITHIN: tuple[tuple[str, Callable[[Seen], RunDecision | None]], ...] = (
    ("parked: keep what is shown", executing.parked),
    ("activeSeconds are over: settle as timeout", executing.active_deadline),
    ("finalizing for too long: settle as error", executing.finalize_deadline),
    ("the pod ended well and left no receipt: look a second time", executing.second_look),
    ("the loss cannot be mended: settle as error", executing.final_loss),
    ("the budget for this class of loss is used up: settle as error", executing.budget_used),
    ("the back-off is not over: RetryBackoff", executing.back_off),
    ("lost: assign the next attempt, end the old pod, Lease, new pod", executing.takeover),
    ("claimed and a living pod: Running", executing.running),
    ("claimed and no pod: wait the Lease out", executing.wait_out),
    ("the image could not be pulled within its grace: settle as error", executing.image_grace),
    ("a living pod: Starting", executing.starting_up),
    ("the pod was refused for good: settle as error", executing.pod_refused),
    ("assigned and no pod yet: the same attempt's pod", executing.same_pod),
)
"""Rules for a Run that holds its thread; the last one answers whatever is left."""


def decide_run(world: RunWorld) -> RunDecision:
    """The answer of the first rule that matches. Pure; never raises for a world that `observe` can build."""
    return decided_by(world)[1]


def decided_by(world: RunWorld) -> tuple[str, RunDecision]:
    """The rule that matched, and its answer (the name goes into logs and tests)."""
    for sentence, rule in OUTSIDE:
        decision = rule(world)
        if decision is not None:
            return sentence, decision
    if world.record is None:
        raise AssertionError("the rules above answer for every Run that is not in the store")
    seen = Seen(world, world.record)
    for sentence, within in WITHIN:
        decision = within(seen)
        if decision is not None:
            return sentence, decision
    raise AssertionError("the last rule answers whatever is left")
