"""The work queue, in virtual time."""

import asyncio
from collections import Counter

from support.virtual_time import run_virtual
from treadle_operator.workqueue import WorkQueue


def now() -> float:
    return asyncio.get_running_loop().time()


def test_one_key_is_never_worked_on_twice_at_once() -> None:
    async def main() -> None:
        at_work: Counter[str] = Counter()
        most: Counter[str] = Counter()

        async def work(key: str) -> None:
            at_work[key] += 1
            most[key] = max(most[key], at_work[key])
            await asyncio.sleep(1)
            at_work[key] -= 1

        queue: WorkQueue[str] = WorkQueue(work)
        queue.start()
        for _ in range(20):
            queue.add("a")
            queue.add("b")
            await asyncio.sleep(0.3)
        await queue.wait_idle()
        assert most == {"a": 1, "b": 1}

    run_virtual(main())


def test_adding_a_waiting_key_again_changes_nothing() -> None:
    async def main() -> None:
        passes: list[str] = []

        async def work(key: str) -> None:
            passes.append(key)

        queue: WorkQueue[str] = WorkQueue(work)
        for _ in range(5):
            queue.add("a")
        assert queue.depth == 1
        queue.start()
        await queue.wait_idle()
        assert passes == ["a"]

    run_virtual(main())


def test_adding_a_key_at_work_makes_exactly_one_more_pass_follow() -> None:
    async def main() -> None:
        passes: list[float] = []

        async def work(key: str) -> None:
            passes.append(now())
            await asyncio.sleep(10)

        queue: WorkQueue[str] = WorkQueue(work)
        queue.start()
        queue.add("a")
        await asyncio.sleep(1)
        for _ in range(7):
            queue.add("a")
        await queue.wait_idle()
        assert passes == [1000.0, 1010.0]

    run_virtual(main())


def test_no_more_keys_are_worked_on_at_once_than_was_said() -> None:
    async def main() -> None:
        running = 0
        most = 0

        async def work(key: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1

        queue: WorkQueue[int] = WorkQueue(work, at_once=3)
        queue.start()
        for key in range(9):
            queue.add(key)
        await queue.wait_idle()
        assert most == 3
        assert now() == 1003.0

    run_virtual(main())


def test_a_pass_can_ask_to_be_repeated_and_the_earliest_wish_stands() -> None:
    async def main() -> None:
        passes: list[float] = []

        async def work(key: str) -> float | None:
            passes.append(now())
            return 30.0 if len(passes) == 1 else None

        queue: WorkQueue[str] = WorkQueue(work)
        queue.start()
        queue.add("a")
        await asyncio.sleep(1)
        queue.add_after("a", 60)
        queue.add_after("a", 5)
        await asyncio.sleep(100)
        assert passes == [1000.0, 1006.0]

    run_virtual(main())


def test_an_added_key_does_not_wait_for_its_planned_repetition() -> None:
    async def main() -> None:
        passes: list[float] = []

        async def work(key: str) -> float | None:
            passes.append(now())
            return 30.0 if len(passes) == 1 else None

        queue: WorkQueue[str] = WorkQueue(work)
        queue.start()
        queue.add("a")
        await asyncio.sleep(2)
        queue.add("a")
        await asyncio.sleep(100)
        assert passes == [1000.0, 1002.0]

    run_virtual(main())


def test_the_oldest_key_is_the_one_that_waits_or_works_longest() -> None:
    async def main() -> None:
        release = asyncio.Event()

        async def work(key: str) -> None:
            await release.wait()

        queue: WorkQueue[str] = WorkQueue(work, at_once=1)
        assert queue.oldest_age() == 0
        queue.start()
        queue.add("a")
        await asyncio.sleep(5)
        queue.add("b")
        await asyncio.sleep(5)
        assert queue.oldest_age() == 10
        assert (queue.depth, queue.running) == (1, 1)
        release.set()
        await queue.wait_idle()
        assert queue.oldest_age() == 0

    run_virtual(main())


def test_stopping_lets_running_passes_end_and_starts_no_other() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def work(key: str) -> float:
            await asyncio.sleep(3)
            ended.append(key)
            return 1.0

        queue: WorkQueue[str] = WorkQueue(work, at_once=1)
        queue.start()
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(1)
        await queue.stop(grace=10)
        await asyncio.sleep(100)
        assert ended == ["a"]

    run_virtual(main())


def test_stopping_cancels_what_does_not_end_in_time() -> None:
    async def main() -> None:
        cancelled = False

        async def work(key: str) -> None:
            nonlocal cancelled
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled = True
                raise

        queue: WorkQueue[str] = WorkQueue(work)
        queue.start()
        queue.add("a")
        await asyncio.sleep(1)
        await queue.stop(grace=2)
        assert cancelled
        assert now() == 1003.0

    run_virtual(main())
