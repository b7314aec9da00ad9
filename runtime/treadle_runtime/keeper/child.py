"""The agent process as the keeper sees it: signalled, reaped, killed with its whole group."""

import contextlib
import os
import signal
from dataclasses import dataclass


@dataclass(slots=True)
class Child:
    """A started agent: its pid (also its process group), and our two ends of the pipe pair."""

    pid: int
    read_fd: int
    write_fd: int
    status: int | None = None
    """Exit code once reaped; 128 + n where signal n ended it."""

    def signal(self, number: int) -> None:
        """Send a signal to the agent alone; a no-op once it is reaped."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill_group(self) -> None:
        """SIGKILL the agent and everything it started in its group; safe to repeat."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def reap(child: Child) -> None:
    """Collect every ended process (PID 1 inherits orphans) and note the agent's status when it is one."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            child.status = code if code >= 0 else 128 - code
