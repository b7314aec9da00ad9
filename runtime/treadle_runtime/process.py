"""What keeper and agent do to their own process. Standard library only: the keeper starts with it."""

import ctypes
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def hide_environment() -> None:
    """Make this process non-dumpable, so that a child of the same uid cannot read `/proc/<pid>/environ`.

    A tool that the agent starts runs with the agent's uid; without this the store credential in our
    environment would be one `cat` away. Linux only; elsewhere there is no `/proc` to protect.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, as it does in a pod, where that is process 1.

    Whoever is stuck in a graph's loop or thread, or waits for a store that is away, cannot be relied upon to
    notice that nobody renews the Lease. A parent that ended before this call is told by its closed pipe.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def cpu_seconds() -> float:
    """The CPU time that this process has used since it began; for logs."""
    return round(time.process_time(), 3)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
