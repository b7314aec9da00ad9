"""A keeper over a stub instead of the agent: `python -m support.keeper_driver FOLDER MODE`.

The stub speaks the pipe's protocol, writes what it saw into FOLDER, and does what MODE says: `work` until
it is told to stop, `hang` without a heartbeat, `deaf` to SIGTERM, `orphan` (leaves a grandchild and a
zombie), or `exit` with 75 once it holds the Lease.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

from treadle_runtime.keeper import spawn, wire

ORDER = {"lease": {"name": "run-1", "namespace": "team", "duration": 6, "renew": 1}}
_PR_SET_CHILD_SUBREAPER = 36


def drive(folder: str, mode: str) -> int:
    """What PID 1 does; in a pod the kernel gives it every orphan, here it asks for them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    started = spawn.start((sys.executable, "-m", "support.keeper_driver", folder, mode, "stub"))
    from treadle_runtime.keeper import guard
    from treadle_runtime.keeper.child import Child

    return guard.run(Child(*started))


def stub(folder: Path, mode: str) -> int:
    (folder / "environ").write_text(json.dumps(dict(os.environ)))
    read_fd, write_fd = int(os.environ[spawn.ENV_READ_FD]), int(os.environ[spawn.ENV_WRITE_FD])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopped.append(number))
    say(write_fd, ORDER)
    if mode == "orphan":
        leave_processes(folder)
    beat = 0
    while True:
        ready, _, _ = select.select([read_fd], [], [], 0.05)
        if ready:
            heard = os.read(read_fd, wire.LINE_LIMIT)
            if not heard:
                return 1
            with (folder / "heard").open("ab") as file:
                file.write(heard)
            if mode == "exit" and b"held" in heard:
                return 75
        if stopped and mode != "deaf":
            (folder / "stopped").touch()
            return 75
        if mode != "hang":
            beat += 1
            say(write_fd, {"beat": beat})


def leave_processes(folder: Path) -> None:
    """A child that outlives us in our group, and one that ends as an orphan without being waited for."""
    if os.fork() == 0:
        (folder / "grandchild").write_text(str(os.getpid()))
        while True:
            signal.pause()
    if os.fork() == 0:
        if os.fork() == 0:
            (folder / "zombie").write_text(str(os.getpid()))
        os._exit(0)


def say(descriptor: int, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, wire.encode(message))


if __name__ == "__main__":
    place, what, *role = sys.argv[1:]
    if role:
        os._exit(stub(Path(place), what))
    sys.exit(drive(place, what))
