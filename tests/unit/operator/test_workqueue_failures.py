"""What the work queue does with passes that fail, in virtual time."""

import asyncio

import pytest

from support.virtual_time import run_virtual
from treadle_operator.workqueue import Backoff, WorkQueue


def now() -> float:
    return asyncio.get_running_loop().time()


NO_JITTER = Backoff(base=1.0, cap=8.0, random=lambda: 0.0)


def test_a_failing_pass_is_repeated_with_growing_waits_until_it_works() -> None:
    async def main() -> None:
        passes: list[float] = []

        async def work(key: str) -> None:
            passes.append(now() - 1000)
            if len(passes) < 6:
                raise RuntimeError("not yet")

        failures: list[int] = []
        queue: WorkQueue[str] = WorkQueue(
            work, backoff=NO_JITTER, on_failure=lambda key, error, n, delay: failures.append(n)
        )
        queue.start()
        queue.add("a")
        await asyncio.sleep(1000)
        assert passes == [0, 1, 3, 7, 15, 23]  # 1, 2, 4, 8, capped at 8
        assert failures == [1, 2, 3, 4, 5]

    run_virtual(main())


def test_success_forgets_earlier_failures() -> None:
    async def main() -> None:
        passes: list[float] = []

        async def work(key: str) -> None:
            passes.append(now() - 1000)
            if len(passes) in (1, 2, 4):
                raise RuntimeError("not yet")

        queue: WorkQueue[str] = WorkQueue(work, backoff=NO_JITTER, on_failure=lambda *_: None)
        queue.start()
        queue.add("a")
        await asyncio.sleep(10)
        queue.add("a")
        await asyncio.sleep(10)
        assert passes == [0, 1, 3, 10, 11]

    run_virtual(main())


def test_the_wait_is_never_shorter_than_what_the_server_asked_for() -> None:
    async def main() -> None:
        passes: list[float] = []

        async def work(key: str) -> None:
            passes.append(now() - 1000)
            if len(passes) == 1:
                raise RuntimeError("busy")

        queue: WorkQueue[str] = WorkQueue(
            work, backoff=NO_JITTER, retry_after=lambda error: 17.0, on_failure=lambda *_: None
        )
        queue.start()
        queue.add("a")
        await asyncio.sleep(100)
        assert passes == [0, 17]

    run_virtual(main())


def test_events_during_a_failing_pass_do_not_defeat_its_backoff() -> None:
    async def main() -> None:
        passes: list[float] = []

        async def work(key: str) -> None:
            passes.append(now() - 1000)
            await asyncio.sleep(0.5)
            if len(passes) < 3:
                raise RuntimeError("not yet")

        queue: WorkQueue[str] = WorkQueue(work, backoff=NO_JITTER, on_failure=lambda *_: None)
        queue.start()
        queue.add("a")
        await asyncio.sleep(0.1)
        queue.add("a")
        await asyncio.sleep(100)
        assert passes == [0, 1.5, 4.0]

    run_virtual(main())


def test_a_pass_that_hangs_is_cancelled_and_counts_as_failed() -> None:
    async def main() -> None:
        passes: list[float] = []
        errors: list[Exception] = []

        async def work(key: str) -> None:
            passes.append(now() - 1000)
            if len(passes) == 1:
                await asyncio.sleep(3600)

        queue: WorkQueue[str] = WorkQueue(
            work, pass_timeout=60, backoff=NO_JITTER, on_failure=lambda k, error, n, d: errors.append(error)
        )
        queue.start()
        queue.add("a")
        await asyncio.sleep(50)
        assert queue.oldest_age() == pytest.approx(50)
        await asyncio.sleep(50)
        assert passes == [0, 61]
        assert isinstance(errors[0], TimeoutError)

    run_virtual(main())


def test_jitter_takes_at_most_half_of_the_wait() -> None:
    assert Backoff(base=1.0, cap=8.0, random=lambda: 0.999999).delay(3) == pytest.approx(2.0, rel=1e-3)
    assert Backoff(base=1.0, cap=8.0, random=lambda: 0.0).delay(3) == 4.0
    assert Backoff(base=1.0, cap=8.0, random=lambda: 0.0).delay(1_000_000) == 8.0
