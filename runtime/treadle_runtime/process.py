"""What keeper and agent do to their own process. Standard library only: the keeper starts with it."""

import ctypes
import sys

_PR_SET_DUMPABLE = 4


def hide_environment() -> None:
    """Make this process non-dumpable, so that a child of the same uid cannot read `/proc/<pid>/environ`.

    A tool that the agent starts runs with the agent's uid; without this the store credential in our
    environment would be one `cat` away. Linux only; elsewhere there is no `/proc` to protect.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed")
