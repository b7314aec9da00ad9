"""The queue between "something happened" and one pass over one object.

A key is worked on by one pass at a time (single flight); adding a key that waits does nothing, adding one
that is being worked on makes one more pass follow (coalescing). A pass may ask to be repeated after a while,
and a pass that raises is repeated with back-off: nothing else in the operator retries. The queue is bounded
by the number of objects, because a key is in it at most once.
"""

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds until the n-th repetition (n from 1): `base * 2**(n-1)`, capped, less up to half at random."""

    base: float = 0.5
    cap: float = 60.0
    random: Callable[[], float] = field(default=random.random, repr=False)

    def delay(self, failures: int) -> float:
        whole = min(self.cap, self.base * 2.0 ** min(failures - 1, 30))
        return float(whole * (1 - self.random() / 2))


class WorkQueue(Generic[K]):
    """Runs `work(key)` for each added key, at most `at_once` keys at the same time.

    `work` returns the seconds after which the key wants another pass, or None. `retry_after` may give the
    least number of seconds to wait after an error (what the server asked for). A pass that lasts longer than
    `pass_timeout` seconds is cancelled and counts as failed.
    """

    def __init__(
        self,
        work: Callable[[K], Awaitable[float | None]],
        *,
        at_once: int = 32,
        pass_timeout: float = 120.0,
        backoff: Backoff | None = None,
        retry_after: Callable[[Exception], float | None] = lambda error: None,
        on_failure: Callable[[K, Exception, int, float], None] | None = None,
    ) -> None:
        self._work = work
        self._at_once = at_once
        self._pass_timeout = pass_timeout
        self._backoff = backoff if backoff is not None else Backoff()
        self._retry_after = retry_after
        self._on_failure = on_failure if on_failure is not None else _log_failure
        self._ready: OrderedDict[K, float] = OrderedDict()  # key -> since when it is ready
        self._running: dict[K, tuple[asyncio.Task[None], float]] = {}
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._started = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def depth(self) -> int:
        """Keys that are ready but not yet worked on."""
        return len(self._ready)

    @property
    def running(self) -> int:
        return len(self._running)

    def oldest_age(self) -> float:
        """Seconds for which the key that waits longest has been ready or worked on; 0 when idle."""
        since = [began for _, began in self._running.values()]
        if self._ready:
            since.append(next(iter(self._ready.values())))
        return max(0.0, _now() - min(since)) if since else 0.0

    def add(self, key: K) -> None:
        """Asks for a pass over `key` as soon as there is room. Forgets a longer planned wait."""
        self._cancel_timer(key)
        if key in self._running:
            self._again.add(key)
        elif key not in self._ready:
            self._ready[key] = _now()
            self._idle.clear()
            self._dispatch()

    def add_after(self, key: K, delay: float) -> None:
        """Asks for a pass in `delay` seconds; of several wishes for one key the earliest stands."""
        if delay <= 0:
            self.add(key)
            return
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= _now() + delay:
            return
        self._cancel_timer(key)
        self._timers[key] = asyncio.get_running_loop().call_later(delay, self._due, key)

    def start(self) -> None:
        """Begins to work; until then keys only gather (so that a start sees the whole picture first)."""
        self._started = True
        self._dispatch()

    async def stop(self, grace: float) -> None:
        """Takes no new key, lets running passes end for `grace` seconds, then cancels them."""
        self._started = False
        for key in list(self._timers):
            self._cancel_timer(key)
        tasks = [task for task, _ in self._running.values()]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=grace)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def wait_idle(self) -> None:
        """Returns once nothing is ready and nothing runs (planned repetitions may still stand)."""
        await self._idle.wait()

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _cancel_timer(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _dispatch(self) -> None:
        while self._started and self._ready and len(self._running) < self._at_once:
            key, since = self._ready.popitem(last=False)
            task = asyncio.get_running_loop().create_task(self._pass(key), name=f"pass {key}")
            self._running[key] = (task, since)

    async def _pass(self, key: K) -> None:
        delay: float | None = None
        try:
            async with asyncio.timeout(self._pass_timeout):
                delay = await self._work(key)
            self._failures.pop(key, None)
        except Exception as error:  # whatever a pass raises, the answer is the same: once more, later
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            delay = max(self._backoff.delay(failures), self._retry_after(error) or 0.0)
            self._on_failure(key, error, failures, delay)
        finally:
            del self._running[key]
            self._follow_up(key, delay)

    def _follow_up(self, key: K, delay: float | None) -> None:
        if key in self._again:
            self._again.discard(key)
            if self._failures.get(key) and delay is not None:
                self.add_after(key, delay)  # a failing key is not hurried by the events it causes
            else:
                self._ready[key] = _now()
        elif delay is not None and self._started:
            self.add_after(key, delay)
        self._dispatch()
        if not self._ready and not self._running:
            self._idle.set()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _log_failure(key: Hashable, error: Exception, failures: int, delay: float) -> None:
    log.warning(
        "A pass failed and will be repeated",
        extra={"key": str(key), "failures": failures, "delay": round(delay, 3), "error": repr(error)},
    )
