"""Carries out what was decided about a Thread: one branch per action, each one idempotent call, in order."""

from collections.abc import Iterable
from typing import assert_never

from treadle_operator.act import LookAgain
from treadle_operator.ledger import Ledger
from treadle_operator.lifecycle.actions import (
    AddFinalizer,
    EmitEvent,
    RegisterThread,
    RemoveFinalizer,
    RetireThread,
    ThreadAction,
)
from treadle_operator.metrics import Metrics
from treadle_operator.objects import Objects
from treadle_operator.observe_others import SeenThread
from treadle_store.errors import StoreRejected


class ThreadActor:
    def __init__(self, objects: Objects, ledger: Ledger, *, metrics: Metrics) -> None:
        self._objects = objects
        self._ledger = ledger
        self._metrics = metrics

    async def carry(self, seen: SeenThread, actions: Iterable[ThreadAction]) -> None:
        """Performs the actions but for Events. Raises LookAgain, and what the adapters raise."""
        thread = seen.world.thread
        for action in actions:
            match action:
                case AddFinalizer():
                    seen.raw = await self._objects.add_finalizer("threads", seen.raw)
                case RemoveFinalizer():
                    seen.raw = await self._objects.remove_finalizer("threads", seen.raw)
                case RegisterThread():
                    adopt = not self._objects.threads_with_key(action.thread)
                    try:
                        await self._ledger.register(action.thread, adopt=adopt)
                    except StoreRejected as rejected:  # an object that we have not seen has the key
                        raise LookAgain from rejected
                case RetireThread():
                    await self._ledger.retire(thread.namespace, action.thread_key, thread.uid)
                case EmitEvent():
                    continue
                case _:
                    assert_never(action)
            self._metrics.actions.labels(type(action).__name__).inc()
