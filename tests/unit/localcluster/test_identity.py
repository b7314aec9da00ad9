"""A process is its pid and its start; a pid used anew is somebody else."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.localcluster.identity import Process

Child = subprocess.Popen[bytes]

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
)
GENTLE = "import time; print(1, flush=True); time.sleep(60)"


@pytest.fixture
def child() -> Iterator[Child]:
    yield from running(GENTLE)


@pytest.fixture
def stubborn() -> Iterator[Child]:
    yield from running(STUBBORN)


def running(program: str) -> Iterator[Child]:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_running_process_is_alive_and_a_killed_one_is_not(child: Child) -> None:
    process = Process.of(child.pid)
    assert process is not None
    assert process.alive()
    child.kill()
    child.wait()
    assert not process.alive()


def test_a_zombie_counts_as_gone(child: Child) -> None:
    process = Process.of(child.pid)
    assert process is not None
    process.stop(grace=10)  # nobody waits for the child, so its pid stays taken
    assert not process.alive()
    assert child.wait() != 0


def test_a_process_that_took_over_a_pid_is_left_alone(child: Child) -> None:
    process = Process.of(child.pid)
    assert process is not None
    earlier = dataclasses.replace(process, started=process.started - 1)
    assert not earlier.alive()
    earlier.stop(grace=1)
    assert child.poll() is None


def test_a_process_that_ignores_the_request_is_killed(stubborn: Child) -> None:
    process = Process.of(stubborn.pid)
    assert process is not None
    process.stop(grace=0.3)
    assert stubborn.wait() == -9


def test_a_pid_that_nobody_has_is_no_process() -> None:
    assert Process.of(2**22 + 1) is None
